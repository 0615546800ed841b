"""Group commit: order, epochs, timestamps, backlog and failure."""

from __future__ import annotations

import errno
import threading
import time
from datetime import UTC, datetime

import numpy as np
import pytest

import belvedere
from belvedere.embedded.storage.commit import Committer, Group, GroupEntry, MicroClock
from belvedere.embedded.storage.faulty import FaultyFiles
from belvedere.embedded.storage.log import InputLog
from belvedere.engine.delta import Changes
from belvedere.engine.vec import Vec
from belvedere.errors import Closed, DiskError, NotYet
from belvedere.model import change_codec as codec
from belvedere.model.token import Token
from belvedere.sql.catalog import TableDef
from belvedere.types import BIGINT, Column

TABLE = TableDef("t", (Column("id", BIGINT, False), Column("v", BIGINT)), ("id",))


def entry(*ids: int) -> GroupEntry:
    data = np.array(ids, np.int64)
    changes = Changes((Vec(BIGINT, data), Vec(BIGINT, data * 2)), (None, None), None, np.zeros(len(ids), np.int64))
    meta, buffer = codec.encode(TABLE, changes, own_clock=True)
    return GroupEntry(meta, buffer, "t", changes, len(ids), clocks=1)


class Setup:
    def __init__(self, now=lambda: 5_000_000, **limits):
        self.files = FaultyFiles(3)
        self.log = InputLog(self.files)
        assert list(self.log.replay()) == []
        self.groups: list[Group] = []
        self.stopped: list[str] = []
        options = {"backlog_rows": 1 << 40, "backlog_bytes": 1 << 40, **limits}
        self.committer = Committer(self.log, MicroClock(now), self.groups.append, self.stopped.append, **options)
        threading.Thread(target=self.committer.run, daemon=True).start()


def test_epochs_and_timestamps_grow_though_the_clock_goes_back():
    times = iter([9_000_000, 9_000_000, 8_000_000, 8_000_000, 1, 1, 1, 1])
    setup = Setup(lambda: next(times))
    tokens = [setup.committer.submit(entry(n)) for n in range(3)]
    assert tokens == [Token(9000), Token(9001), Token(9002)]
    assert [int(g.entries[0].changes.ts[0]) for g in setup.groups] == [9_000_000, 9_000_001, 9_000_002]


def test_concurrent_callers_share_syncs_and_each_entry_is_logged_once_in_order_of_delivery():
    setup = Setup()
    threads = [
        threading.Thread(target=lambda k=k: [setup.committer.submit(entry(k * 1000 + n)) for n in range(50)])
        for k in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    delivered = [int(e.changes.columns[0].data[0]) for g in setup.groups for e in g.entries]
    assert sorted(delivered) == sorted(k * 1000 + n for k in range(8) for n in range(50))
    logged = []
    for record in InputLog(setup.files.crash()).replay():
        metas = record.meta["entries"]
        for meta, buffer in zip(metas, record.buffers([m["b"] for m in metas]), strict=True):
            change = codec.decode(TABLE, meta, buffer)
            logged.append(int(change.columns[0].data[0]))
            assert change.columns[1].data[0] == 2 * logged[-1]
    assert logged == delivered


def test_a_full_disk_fails_every_waiting_caller_and_later_calls_work():
    setup = Setup()
    setup.committer.submit(entry(1))
    setup.files.fail("write", error=errno.ENOSPC)
    with pytest.raises(DiskError):
        setup.committer.submit(entry(2))
    setup.committer.submit(entry(3))
    assert [g.sequence for g in setup.groups] == [1, 2] and setup.committer.rows == 2 and not setup.stopped


def test_a_failed_sync_stops_everything_and_names_the_reason():
    setup = Setup()
    setup.files.fail("sync")
    for _ in range(2):
        with pytest.raises(Closed, match="scripted failure"):
            setup.committer.submit(entry(1))
    assert len(setup.stopped) == 1 and not setup.groups


def test_the_backlog_makes_writers_wait_until_the_engine_has_caught_up():
    setup = Setup(backlog_rows=3)
    setup.committer.submit(entry(1, 2, 3, 4))
    with pytest.raises(NotYet, match="backlog"):
        setup.committer.submit(entry(5), timeout=0.01)
    waiting = threading.Thread(target=lambda: setup.committer.submit(entry(6)))
    waiting.start()
    setup.committer.processed(4, 0)
    waiting.join(5)
    assert len(setup.groups) == 2


def test_tokens_travel_as_text_and_are_ordered():
    assert Token.parse(str(Token(17))) == Token(17) == Token.parse(17) < Token(18)
    with pytest.raises(ValueError, match="no token"):
        Token.parse("soon")


def test_only_what_was_written_is_stored_and_masks_survive():
    data = np.array([1, 2, 3], np.int64)
    present = np.array([True, False, True])
    delete = np.array([False, True, False])
    changes = Changes((Vec(BIGINT, data), Vec(BIGINT, data * 2)), (None, present), delete, data + 100)
    meta, buffer = codec.encode(TABLE, changes, own_clock=False)
    back = codec.decode(TABLE, meta, buffer)
    assert back.present[1].tolist() == present.tolist() and back.delete.tolist() == delete.tolist()
    assert back.ts.tolist() == [101, 102, 103] and back.columns[0].data.tolist() == [1, 2, 3]
    wider = TableDef("t", (*TABLE.columns, Column("w", BIGINT)), ("id",))
    assert codec.decode(wider, meta, buffer).present[2].tolist() == [False] * 3


def test_a_snapshot_of_a_token_has_its_write_though_others_were_committed_with_it() -> None:
    """Its epoch is then that of the last of them."""
    with belvedere.open() as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT id FROM t")
        go_on = threading.Event()
        held = threading.Thread(target=lambda: db._runtime.call(lambda: go_on.wait(60)))
        held.start()
        first, last = db.put("t", {"id": 1}), db.put("t", {"id": 2})
        go_on.set()
        held.join()
        db.wait(last)
        assert db.get("v", 1, at=first) == {"id": 1}
        with db.snapshot(first) as snapshot:
            assert snapshot.get("v", 1) == {"id": 1}
        while time.time() * 1000 <= db.epoch:  # epochs of one millisecond get ahead of the clock
            db.wait(last)
        with db.snapshot(datetime.now(UTC)) as snapshot:
            assert snapshot.scan("v").num_rows == 2
        with pytest.raises(NotYet):
            db.snapshot(db.epoch + 60_000)
