"""A pool of real processes that show each other certificates; a client with one, and others without."""

from __future__ import annotations

from pathlib import Path

import pytest

import belvedere
from belvedere import errors
from belvedere.cluster.process.local import ClusterShape, LocalCluster
from tests.cluster.certificates import authority, certified
from tests.cluster.real import TABLES, VIEWS


def test_all_roles_and_a_client_work_with_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = authority(tmp_path, "ours"), authority(tmp_path, "theirs")
    members, client = certified(tmp_path, "members", ours), certified(tmp_path, "client", ours)
    stranger = certified(tmp_path, "stranger", theirs, trusts=ours)
    for name in ("certificate", "key", "authority"):
        monkeypatch.setenv(f"BELVEDERE_TLS_{name.upper()}", str(getattr(members, name)))
    shape = ClusterShape(viewservers=2, distributors=1, coordinators=1, session_timeout=4.0, sync=False)
    with LocalCluster(tmp_path / "cluster", shape) as cluster:
        url = cluster.url.replace("belvedere://", "belvedere+tls://")
        files = {"certificate": client.certificate, "key": client.key, "authority": client.authority}
        with belvedere.connect(url, timeout=60.0, **files) as db:
            for sql in (*TABLES, *VIEWS):
                db.execute(sql)
            token = db.put("orders", [{"id": n, "customer": n % 3, "total": "1.50"} for n in range(30)])
            assert db.get("spend", 1, after=token, timeout=60.0) == {"customer": 1, "n": 10, "total": 15}
            assert sorted(row["customer"] for row in db.scan("big", after=token).to_pylist()) == [0, 1, 2]
        others = {"certificate": stranger.certificate, "key": stranger.key, "authority": stranger.authority}
        for where, shown in ((cluster.url, {}), (url, others)):
            with pytest.raises(errors.Unavailable), belvedere.connect(where, timeout=3.0, **shown) as db:
                db.get("spend", 1)
