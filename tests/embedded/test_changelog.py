"""The output changelog: reads back what was written, survives crashes as a prefix of epochs, and is collected."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from belvedere.embedded.storage.changelog import Changelog, Position
from belvedere.embedded.storage.faulty import FaultyFiles, MemoryFiles
from belvedere.engine.delta import Delta
from belvedere.engine.state.hashing import hash_rows
from belvedere.engine.vec import Vec
from belvedere.errors import EpochExpired
from belvedere.model.describe import ViewShape
from belvedere.types import BIGINT, STRING, Column

SHAPE = ViewShape("v", 1, (Column("k", BIGINT), Column("s", STRING)), 2, (0,))
SHAPES = {("v", 1): SHAPE}


def delta(*keys: int) -> Delta:
    data = np.array(keys, np.int64)
    status = np.array([k % 3 != 0 for k in keys], np.uint8)
    columns = (Vec(BIGINT, data), Vec(STRING, pa.array([f"s{k}" for k in keys]), status))
    return Delta(columns, np.where(data % 2 == 0, 1, -1).astype(np.int8), hash_rows(columns[:1], len(data)))


def keys(log: Changelog, after: int, upto: int) -> list:
    out = []
    for change in log.read(after, upto):
        for name, found in change.deltas(SHAPES):
            assert name == "v"
            k = found.columns[0].data.tolist()
            expected = delta(*k)
            assert found.weight.tolist() == expected.weight.tolist() and (found.id == expected.id).all()
            assert found.columns[1].to_arrow().equals(expected.columns[1].to_arrow())
            out.append((change.epoch, k))
    return out


def fresh(files, **options) -> Changelog:
    log = Changelog(files, **options)
    log.open(None, 0)
    return log


def test_epochs_come_back_from_any_point_over_several_segments():
    log = fresh(MemoryFiles(), segment_bytes=5_000)
    written = []
    for epoch in range(10, 3000, 10):
        log.append(epoch, [(SHAPE, delta(epoch, epoch + 1))] if epoch % 30 else [])
        if epoch % 30:
            written.append((epoch, [epoch, epoch + 1]))
    assert log.floor == 0 and log.epoch == 2990
    for after in (0, 5, 10, 15, 1234, 2980, 2990):
        assert keys(log, after, 2990) == [w for w in written if w[0] > after]
    assert keys(log, 100, 200) == [w for w in written if 100 < w[0] <= 200]
    log.collect(1000, None, 5000)
    assert 800 < log.floor <= 1000
    with pytest.raises(EpochExpired):
        keys(log, 500, 600)
    assert keys(log, 1000, 2990) == [w for w in written if w[0] > 1000]
    log.collect(1000, 0, 2000)
    assert 1800 < log.floor <= 2000


def test_records_larger_than_a_read_window():
    log = fresh(MemoryFiles())
    big = list(range(300_000))
    log.append(1, [(SHAPE, delta(*big))], more=True)
    log.append(1, [(SHAPE, delta(-1))])
    log.append(2, [(SHAPE, delta(-2))])
    assert keys(log, 0, 2) == [(1, big), (1, [-1]), (2, [-2])]


def test_after_a_crash_complete_epochs_are_left_and_what_a_snapshot_synced_is_among_them():
    for seed in range(150):
        files = FaultyFiles(seed)
        log = fresh(files, segment_bytes=2_000)
        written = []
        position = Position(0, 64, 0)
        for epoch in range(1, 40):
            log.append(epoch, [(SHAPE, delta(epoch))], more=True)
            log.append(epoch, [(SHAPE, delta(-epoch))])
            written += [(epoch, [epoch]), (epoch, [-epoch])]
            if epoch == seed % 45:
                log.sync()
                position = log.position()
        after = files.crash()
        log = Changelog(after, segment_bytes=2_000)
        log.open(position, position.epoch)
        assert log.epoch >= position.epoch
        assert keys(log, log.floor, log.epoch) == [w for w in written if log.floor < w[0] <= log.epoch]
        assert log.floor == 0 or position.epoch == 0
        log.append(100, [(SHAPE, delta(7))])
        assert keys(log, log.floor, 100)[-1] == (100, [7])
