"""A real HBase for tests: one for the whole run, shared by its worker processes.

`hbase` is a fixture, known to all tests of the parent folder (a second `conftest.py` that imported it would make a
second one). Use names of your own (`unique`), and leave what others use as it is: a test that kills a server starts it
again, and none ends the gateway or ZooKeeper, which takes connections of others with it (`own`). Without Java, or
without the jars and Maven, tests that ask for it are skipped and say what is missing.

Workers find each other in a directory of the run. The first starts it, the last stops it; should all of them be killed,
the end of the last one's hold on a named pipe ends it.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.backend.hbase.local.jars import find_classes, missing_tool
from belvedere.errors import StoreUnavailable
from belvedere.local.child import Leash, hold

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def hbase(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHBase]:
    _skip_if_lacking()
    base = tmp_path_factory.getbasetemp()
    with shared(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) as cluster:
        yield cluster


def _skip_if_lacking() -> None:
    lacking = missing_tool()
    if lacking is not None:
        pytest.skip(lacking)
    try:
        find_classes()
    except StoreUnavailable as missing:
        pytest.skip(str(missing))


@contextlib.contextmanager
def own(place: Path) -> Iterator[LocalHBase]:
    """One for tests that end the gateway or ZooKeeper: whoever shares these loses connections."""
    _skip_if_lacking()
    with LocalHBase(place, leash=Leash.OURS) as cluster:
        yield cluster


@contextlib.contextmanager
def shared(place: Path) -> Iterator[LocalHBase]:
    """The HBase of this place, for as long as it is needed by anybody."""
    with open(place / "hbase.users", "w") as users:
        with _alone(place):
            fcntl.flock(users, fcntl.LOCK_SH)
            leash = hold(place / "hbase.leash")
            cluster = LocalHBase(place / "hbase", leash=place / "hbase.leash")
            if len(cluster.pids()) < len(cluster.names):
                cluster.start()
        try:
            yield cluster
        finally:
            with _alone(place):
                try:
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:  # others need it still
                    cluster.disown()
                else:
                    cluster.stop()
                os.close(leash)


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[None]:
    with open(place / "hbase.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def unique(stem: str = "t") -> str:
    """A name for a table or a namespace that no other test of this run has."""
    return f"{stem}_{os.getpid()}_{next(_NUMBERS)}"
