"""Snapshots: what is published is there whole after any crash, and damage is named."""

from __future__ import annotations

import contextlib

import numpy as np
import pyarrow as pa
import pytest

from belvedere.embedded.storage.faulty import FaultyFiles
from belvedere.embedded.storage.files import OsFiles
from belvedere.embedded.storage.snapshot import SnapshotWriter, StoredSnapshot
from belvedere.errors import Damaged


def write(files, epoch: int) -> None:
    writer = SnapshotWriter(files, epoch)
    table = writer.add_table(pa.table({"a": list(range(epoch)), "s": [str(n) for n in range(epoch)]}))
    state = writer.add_arrays(
        {"x": np.arange(epoch, dtype=np.uint64).reshape(-1, 2), "y": np.zeros(0, np.int8), "z": np.ones(3)}
    )
    writer.publish({"epoch": epoch, "table": table, "state": state})


def check(files, epoch: int) -> None:
    found = StoredSnapshot.current(files)
    assert found is not None and found.manifest["epoch"] == epoch
    assert found.table(found.manifest["table"]).column("a").to_pylist() == list(range(epoch))
    state = found.arrays(found.manifest["state"])
    assert state["x"].tolist() == np.arange(epoch).reshape(-1, 2).tolist() and state["z"].tolist() == [1, 1, 1]
    assert state["y"].dtype == np.int8 and len(state["y"]) == 0


def test_the_newest_published_snapshot_counts_and_older_ones_go(tmp_path):
    files = OsFiles(tmp_path)
    assert StoredSnapshot.current(files) is None
    for epoch in (10, 200, 40):
        write(files, epoch)
        check(files, epoch)
    assert len(files.list("snapshots")) == 1


def test_a_crash_at_any_operation_leaves_the_old_or_the_new_snapshot():
    for seed in range(3):
        for cut in range(60):
            files = FaultyFiles(seed * 1000 + cut)
            write(files, 10)
            files.cut_after(cut)
            with contextlib.suppress(OSError):
                write(files, 20)
            dead = files.dead
            after = files.crash()
            found = StoredSnapshot.current(after)
            assert found is not None
            check(after, found.manifest["epoch"])
            if not dead:
                check(after, 20)
                break
        else:
            raise AssertionError("publishing takes more operations than were tried")


def test_damage_is_named(tmp_path):
    files = OsFiles(tmp_path)
    write(files, 100)
    found = StoredSnapshot.current(files)
    path = tmp_path / "snapshots" / found.name / found.manifest["table"]
    content = bytearray(path.read_bytes())
    content[50] ^= 1
    path.write_bytes(content)
    with pytest.raises(Damaged, match=r"0000\.arrow"):
        found.table(found.manifest["table"])
    manifest = path.parent / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"epoch": 100', b'"epoch": 101'))
    with pytest.raises(Damaged, match=r"manifest\.json"):
        StoredSnapshot.current(files)
