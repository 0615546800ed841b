"""A pool of real processes that show each other certificates: whom they let in, and how certificates are renewed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import belvedere
from belvedere import errors
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.process.local import ClusterShape, LocalCluster
from belvedere.rpc.tls_files import LOOK_SECONDS
from tests.cluster.certificates import Mounted, authority, certified
from tests.cluster.real import TABLES, VIEWS

NAME = "localhost"
"""What the certificates of members are checked for, wherever these are reached."""


class Secured:
    """A pool, and the folder that all of its processes read their certificate from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ours = authority(folder, "ours")
        self.members = Mounted(folder / "members")
        self.members.hold(certified(folder, "members", self.ours), self.ours)
        shape = ClusterShape(viewservers=2, distributors=1, coordinators=1, session_timeout=4.0, sync=False)
        self.cluster = LocalCluster(folder / "cluster", shape)

    @property
    def url(self) -> str:
        return self.cluster.url.replace("belvedere://", "belvedere+tls://")

    def connect(self, timeout: float = 60.0) -> ClusterDatabase:
        files = self.members.files
        found = belvedere.connect(
            self.url,
            timeout=timeout,
            certificate=files.certificate,
            key=files.key,
            authority=files.authority,
            server_name=NAME,
        )
        assert isinstance(found, ClusterDatabase)
        return found


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with pytest.MonkeyPatch.context() as patch:
        made = Secured(tmp_path_factory.mktemp("tls"))
        for name in ("certificate", "key", "authority"):
            patch.setenv(f"BELVEDERE_TLS_{name.upper()}", str(getattr(made.members.files, name)))
        patch.setenv("BELVEDERE_TLS_SERVER_NAME", NAME)
        with made.cluster:
            with made.connect() as db:
                for sql in (*TABLES, *VIEWS):
                    db.execute(sql)
            yield made


def test_all_roles_and_a_client_work_with_certificates(pool: Secured, tmp_path: Path) -> None:
    theirs = authority(tmp_path, "theirs")
    client = certified(tmp_path, "client", pool.ours)
    stranger = certified(tmp_path, "stranger", theirs, trusts=pool.ours)
    with pool.connect() as db:
        token = db.put("orders", [{"id": n, "customer": n % 3, "total": "1.50"} for n in range(30)])
        assert db.get("spend", 1, after=token, timeout=60.0) == {"customer": 1, "n": 10, "total": 15}
        assert sorted(row["customer"] for row in db.scan("big", after=token).to_pylist()) == [0, 1, 2]
    others: dict[str, Any] = {"certificate": stranger.certificate, "key": stranger.key, "authority": stranger.authority}
    misnamed: dict[str, Any] = {"certificate": client.certificate, "key": client.key, "authority": client.authority}
    misnamed["server_name"] = "another.pool"
    attempts: list[tuple[str, dict[str, Any]]] = [(pool.cluster.url, {}), (pool.url, others), (pool.url, misnamed)]
    for where, shown in attempts:
        with pytest.raises(errors.Unavailable), belvedere.connect(where, timeout=3.0, **shown) as refused:
            refused.get("spend", 1)


def test_authorities_are_replaced_under_load_and_nothing_is_lost(pool: Secured) -> None:
    """The three steps of a rotation, with all processes, a client and a store that never stop."""
    new = authority(pool.folder, "new")
    by_old, by_new = certified(pool.folder, "again", pool.ours), certified(pool.folder, "members-new", new)
    before = {each["name"]: each["pid"] for each in pool.cluster.described()}
    stop, failed = threading.Event(), list[BaseException]()
    written = [0]

    def write() -> None:
        try:
            with pool.connect() as db:
                while not stop.is_set():
                    first = 1_000 + written[0]
                    rows = [{"id": n, "customer": 77, "total": "2.00"} for n in range(first, first + 5)]
                    token = db.put("orders", rows)
                    written[0] += 5
                    row = db.get("spend", 77, after=token, timeout=30.0)
                    assert row is not None and row["n"] >= written[0]
        except BaseException as error:
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    steps = ((by_old, (pool.ours, new)), (by_new, (new, pool.ours)), (by_new, (new,)))
    for certificates, authorities in steps:
        pool.members.hold(certificates, *authorities)
        count, deadline = written[0], time.monotonic() + 60.0
        time.sleep(LOOK_SECONDS * 2)  # everybody has looked
        while written[0] < count + 50 and not failed:
            assert time.monotonic() < deadline, f"only {written[0] - count} rows were written since a step"
            time.sleep(0.05)
    stop.set()
    writer.join(60.0)
    assert not failed, failed
    with pool.connect() as db:
        found = db.get("spend", 77, timeout=30.0)
        assert found == {"customer": 77, "n": written[0], "total": Decimal(2 * written[0])}
        assert db.verify("spend").ok
    assert {each["name"]: each["pid"] for each in pool.cluster.described()} == before, "nobody was started anew"
    old: dict[str, Any] = {
        "certificate": by_old.certificate,
        "key": by_old.key,
        "authority": new[1],
        "server_name": NAME,
    }
    with pytest.raises(errors.Unavailable), belvedere.connect(pool.url, timeout=3.0, **old) as refused:
        refused.get("spend", 77)
