"""The input log on a disk that loses, tears and reorders: what was acknowledged is there once, the rest not or
whole."""

from __future__ import annotations

import contextlib
import errno
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from belvedere.embedded.storage import records
from belvedere.embedded.storage.faulty import FaultyFiles
from belvedere.embedded.storage.files import Files, OsFiles
from belvedere.embedded.storage.log import DIRECTORY, InputLog
from belvedere.errors import Closed, Damaged, DiskError, FormatError


def opened(files: Files, **options) -> tuple[InputLog, list]:
    log = InputLog(files, **options)
    return log, [(r.sequence, r.epoch, r.meta["n"], bytes(r.buffers([r.meta["b"]])[0])) for r in log.replay()]


def append(log: InputLog, number: int, size: int) -> tuple:
    body = bytes([number % 251]) * size
    epoch = log.epoch + 3
    log.append(epoch, json.dumps({"n": number, "b": size}).encode(), [body])
    return (log.sequence, epoch, number, body)


@pytest.fixture(params=["real", "memory"])
def files(request, tmp_path) -> Files:
    return OsFiles(tmp_path) if request.param == "real" else FaultyFiles(1)


def test_records_come_back_in_order_over_several_segments(files):
    log, found = opened(files, segment_bytes=4000)
    assert found == []
    written = [append(log, n, 700 + n) for n in range(20)]
    log.close()
    assert len(files.list(DIRECTORY)) > 3
    log, found = opened(files)
    assert found == written
    written.append(append(log, 99, 0))
    log.close()
    assert opened(files)[1] == written


def test_replay_starts_after_the_snapshot_and_old_segments_go(files):
    log, _ = opened(files, segment_bytes=2000)
    written = [append(log, n, 900) for n in range(10)]
    log.collect(written[5][0])
    log.close()
    log = InputLog(files)
    assert [r.sequence for r in log.replay(written[5][0], written[5][1])] == [w[0] for w in written[6:]]
    with pytest.raises(Damaged, match="missing"):
        opened(files)


def test_a_torn_tail_is_cut_wherever_it_tears(tmp_path):
    files = OsFiles(tmp_path)
    log, _ = opened(files)
    written = [append(log, n, 200) for n in range(3)]
    log.close()
    name = files.list(DIRECTORY)[0]
    path = tmp_path / DIRECTORY / name
    whole = path.read_bytes()
    start = whole.rfind(b"BREC")
    for cut in [start + 1, start + 63, start + 64, start + 100, len(whole) - 1]:
        path.write_bytes(whole[:cut])
        log, found = opened(files)
        assert found == written[:2] and log.torn_bytes == cut - start
        following = append(log, 7, 50)
        log.close()
        log, found = opened(files)
        assert found == [*written[:2], following] and log.torn_bytes == 0, "what follows stands where the tail was"
        log.close()


@pytest.mark.parametrize("byte", [0, 10, 70, 64 + 3, 64 + 20, 64 + 64 + 5, 64 + 64 + 100])
def test_a_damaged_middle_is_an_error_that_says_where(tmp_path, byte):
    files = OsFiles(tmp_path)
    log, _ = opened(files)
    for n in range(3):
        append(log, n, 200)
    log.close()
    name = files.list(DIRECTORY)[0]
    path = tmp_path / DIRECTORY / name
    content = bytearray(path.read_bytes())
    content[byte] ^= 0x55
    path.write_bytes(content)
    with pytest.raises(Damaged, match=rf"{name}.*byte {0 if byte < 64 else 64}"):
        opened(files)


def test_a_newer_format_is_refused_by_name(tmp_path, monkeypatch):
    files = OsFiles(tmp_path)
    with monkeypatch.context() as newer:
        newer.setattr(records, "FORMAT_VERSION", 7)
        log, _ = opened(files)
        append(log, 1, 10)
        log.close()
    with pytest.raises(FormatError, match="format version 7"):
        opened(files)


def test_a_full_disk_loses_nothing_and_the_log_goes_on():
    files = FaultyFiles(4)
    log, _ = opened(files)
    written = [append(log, 0, 500)]
    files.fail("write", error=errno.ENOSPC, always=True)
    for n in (1, 2):
        with pytest.raises(DiskError, match="nothing was written"):
            append(log, n, 500)
    files.heal()
    written.append(append(log, 3, 500))
    assert opened(files.crash())[1] == written


def test_a_failed_sync_stops_the_log_for_good():
    files = FaultyFiles(4)
    log, _ = opened(files)
    written = append(log, 0, 500)
    files.fail("sync")
    with pytest.raises(Closed, match="scripted failure"):
        append(log, 1, 500)
    with pytest.raises(Closed, match="scripted failure"):
        append(log, 2, 500)
    assert opened(files.crash())[1][0] == written


def test_without_sync_a_crash_keeps_a_prefix():
    for seed in range(60):
        files = FaultyFiles(seed)
        log, _ = opened(files, sync=False, segment_bytes=3000)
        written = [append(log, n, 300) for n in range(20)]
        found = opened(files.crash())[1]
        assert found == written[: len(found)]


def test_a_half_made_segment_that_was_removed_does_not_come_back():
    for seed in range(300):
        files = FaultyFiles(seed)
        log, _ = opened(files)
        written = [append(log, n, 400) for n in range(2)]
        log.rotate()  # as a snapshot does
        files.cut_after(2)  # in the middle of the new segment's header
        with pytest.raises((OSError, Closed, DiskError)):
            append(log, 2, 400)
        files = files.crash()
        log, found = opened(files)
        assert found == written
        found.append(append(log, 10, 400))
        log.rotate()
        files.cut_after(seed % 8)
        with contextlib.suppress(OSError, Closed, DiskError):
            found.append(append(log, 11, 400))
        again = opened(files.crash())[1]
        assert again[: len(found)] == found and len(again) <= len(found) + 1


def test_a_record_of_which_any_sectors_reached_the_disk_is_there_whole_or_not_at_all():
    """The power is cut between the write and its sync, a few hundred times."""
    torn = whole = 0
    for seed in range(400):
        files = FaultyFiles(seed)
        log, _ = opened(files)
        before = [append(log, 1, 100)]
        files.cut_after(1)
        attempted = [(2, log.epoch + 3, 2, bytes([2]) * 3000)]
        with pytest.raises((OSError, Closed)):
            append(log, 2, 3000)
        again, found = opened(files.crash())
        assert found in (before, before + attempted)
        whole += len(found) == 2
        torn += again.torn_bytes > 3000
    assert whole > 50 and torn >= 10, "both happened, also with its last sector there and others lost"


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    lives=st.lists(
        st.tuples(st.integers(0, 25), st.lists(st.integers(0, 3000), max_size=8), st.booleans()), max_size=5
    ),
)
def test_after_any_crash_what_was_acknowledged_is_there_once_and_nothing_is_there_by_half(seed, lives):
    files = FaultyFiles(seed)
    acknowledged: list = []
    number = 0
    for operations, sizes, full in lives:
        files.cut_after(operations)
        if full:
            files.fail("write", after=2, error=errno.ENOSPC)
        attempted: list = []
        try:
            log, found = opened(files, segment_bytes=4000)
            assert found == acknowledged
            for size in sizes:
                number += 1
                attempted = [(log.sequence + 1, log.epoch + 3, number, bytes([number % 251]) * size)]
                try:
                    acknowledged.append(append(log, number, size))
                    attempted = []
                except DiskError:
                    continue
        except (OSError, Closed):
            pass
        files = files.crash()
        # the record whose fate was unknown is there whole or not at all; from then on it is as good as acknowledged
        _, found = opened(files)
        assert found in (acknowledged, acknowledged + attempted)
        acknowledged = found
