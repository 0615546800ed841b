"""`build` as a job with a session of its own, for the command line."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from pyspark.sql import SparkSession

from belvedere.cluster.catalog.aside import runner_document
from belvedere.cluster.client.connecting import connect
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.errors import BelvedereError, DataError
from belvedere.spark.build.building import BuildReport, Settings, build
from belvedere.spark.sessions import open_session

LEASE_MS = 30_000
"""How long a pool counts on a builder that it heard of."""
LOOK_SECONDS = 2.0
RUNNING = ("belvedere://", "belvedere+tls://")


def build_job(
    database: str,
    views: Sequence[str] = (),
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    access: Mapping[str, str] | None = None,
    *,
    how: Settings | None = None,
    follow: Callable[[], bool] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[BuildReport]:
    """Build what a pool waits for, with a session that is made if there is none. The same call again goes on where this
    one was killed. `follow`: go on as long as it says so, take what comes, and let the pool know that it can count on
    that (`build: auto`)."""
    if not database.startswith(RUNNING):
        raise DataError(f"{database!r} is no pool: an embedded database builds with its own engine; give belvedere://…")
    known = SparkSession.getActiveSession()
    spark = open_session(master, settings=settings or {})
    if known is None:
        spark.sparkContext.setLogLevel("OFF")  # what ends the job is raised
    run = functools.partial(build, spark, database, views, how, tell, **dict(access or {}))
    try:
        if follow is None:
            yield from run()
            return
        with _attached(database, dict(access or {})):
            while follow():
                yield from run()
                time.sleep(LOOK_SECONDS)
    finally:
        if known is None:
            spark.stop()


@contextlib.contextmanager
def _attached(url: str, access: dict[str, str]) -> Iterator[None]:
    """The pool knows of this builder, until its lease ends."""
    ended = threading.Event()
    name = f"{socket.gethostname()}-{os.getpid()}"
    with connect(url, **access) as db:  # type: ignore[arg-type]  # files of TLS, all of them texts
        before = _renew(db, name, "")
        arguments = (db, name, before, ended)
        thread = threading.Thread(target=_renewing, args=arguments, name="belvedere runner", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _renew(db: ClusterDatabase, name: str, before: str) -> str:
    store = db.stores(db.deadline())
    document = runner_document(name, int(time.time() * 1000) + LEASE_MS)
    store.put_document(document, b"")
    if before:
        store.remove_documents([before])
    return document


def _renewing(db: ClusterDatabase, name: str, document: str, ended: threading.Event) -> None:
    while not ended.wait(LEASE_MS / 4000):
        with contextlib.suppress(BelvedereError):  # a lease that ends is told by what is chosen
            document = _renew(db, name, document)
    with contextlib.suppress(BelvedereError):
        db.stores(db.deadline()).remove_documents([document])
