"""Appending to real files: past the page cache or through it, the bytes are the same."""

from __future__ import annotations

import errno
import fcntl
import json
import os

import numpy as np
import pytest

from belvedere.embedded.storage.faulty import FaultyFiles
from belvedere.embedded.storage.files import OsFiles
from belvedere.embedded.storage.log import InputLog
from belvedere.model.physical import PAGE, PAGED_BYTES


def pages(count: int, seed: int) -> memoryview:
    room = np.random.default_rng(seed).integers(0, 256, (count + 1) * PAGE).astype(np.uint8)
    start = -room.ctypes.data % PAGE
    return room[start : start + count * PAGE].data


BIG = PAGED_BYTES // PAGE
WRITES = [
    [b"head", bytes(PAGE - 4), pages(BIG, 1)],
    [pages(BIG, 2), pages(3, 3)],
    [b"small"],
    [pages(BIG, 4)],
    [bytes(PAGE - 5), pages(BIG, 5)],
    [pages(BIG, 6)],
    [pages(BIG, 7)[1:]],
]


def append_all(tmp_path) -> bytes:
    appender = OsFiles(tmp_path).append("f")
    for buffers in WRITES:
        appender.write(buffers)
        appender.sync()
    size = appender.size
    appender.close()
    content = (tmp_path / "f").read_bytes()
    assert len(content) == size
    return content


EXPECTED = b"".join(bytes(b) for buffers in WRITES for b in buffers)


def test_writes_of_pages_and_of_anything_else_mix(tmp_path):
    assert append_all(tmp_path) == EXPECTED


def test_a_short_write_goes_on_where_it_stopped(tmp_path, monkeypatch):
    real = os.writev

    def short(fd, buffers):
        return real(fd, [b[: max(1, len(b) // 2)] for b in buffers[:1]])

    monkeypatch.setattr(os, "writev", short)
    assert append_all(tmp_path) == EXPECTED


def test_a_disk_that_wants_the_page_cache_gets_it(tmp_path, monkeypatch):
    real, refused = os.writev, []

    def no_direct(fd, buffers):
        if direct(fd):
            refused.append(fd)
            raise OSError(errno.EINVAL, "no direct writes here")
        return real(fd, buffers)

    monkeypatch.setattr(os, "writev", no_direct)
    assert append_all(tmp_path) == EXPECTED
    assert len(refused) <= 1


def direct(fd: int) -> bool:
    return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT)


@pytest.mark.parametrize("disk", ["real", "memory"])
@pytest.mark.parametrize("sync", [True, False])
def test_records_of_pages_and_small_ones_come_back(tmp_path, disk, sync):
    files = OsFiles(tmp_path) if disk == "real" else FaultyFiles(2)
    log = InputLog(files, sync=sync, segment_bytes=8 * PAGED_BYTES)
    assert list(log.replay()) == []
    written = []
    for n in range(30):
        buffers = [pages(BIG + n, n), pages(2, n)] if n % 7 else [b"x" * n, bytes(pages(BIG, n))]
        meta = {"b": [len(b) for b in buffers], "long": "y" * (n % 5 * 1500)}
        log.append(log.epoch + 1, json.dumps(meta).encode(), buffers)
        written.append((meta, [bytes(b) for b in buffers]))
    log.close()
    assert len(log.segments) > 2
    again = [(r.meta, [bytes(b) for b in r.buffers(r.meta["b"])]) for r in InputLog(files).replay()]
    assert again == written
