"""Payloads that wait for their stage: each once, in memory or in a file, forgotten with their attempt."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from belvedere.cluster.roles.batch_buffer import BatchBuffer
from belvedere.errors import DiskError
from belvedere.protocol.messages import Attempt, Batch, Epoch
from belvedere.protocol.ring import MemberId


def batch(number: int, *, epoch: int = 1, attempt: int = 0, stage: int = 0, sender: str = "d") -> Batch:
    return Batch(Epoch(epoch), Attempt(attempt), stage, MemberId(sender), number, rows=10)


def taken(kept: BatchBuffer, epoch: int = 1, attempt: int = 0, stage: int = 0) -> list[tuple[str, int, bytes]]:
    found = kept.take(Epoch(epoch), Attempt(attempt), stage)
    return [(one.sender, one.number, payload) for one, payload in found]


def test_a_stage_gets_its_own_batches_by_sender_and_number() -> None:
    kept = BatchBuffer(1 << 20)
    for sender, number in [("b", 1), ("a", 2), ("b", 0), ("a", 0)]:
        kept.put(batch(number, sender=sender), f"{sender}{number}".encode())
    kept.put(batch(0, stage=1), b"later")
    kept.put(batch(0, attempt=1), b"again")
    assert taken(kept) == [("a", 0, b"a0"), ("a", 2, b"a2"), ("b", 0, b"b0"), ("b", 1, b"b1")]
    assert taken(kept) == []
    assert taken(kept, stage=1) == [("d", 0, b"later")]
    assert taken(kept, attempt=1) == [("d", 0, b"again")]
    assert kept.nbytes == 0


def test_a_repeat_changes_nothing() -> None:
    kept = BatchBuffer(1 << 20)
    kept.put(batch(0), b"first")
    kept.put(batch(0), b"first")
    assert kept.nbytes == 5
    assert taken(kept) == [("d", 0, b"first")]


def test_what_does_not_fit_into_memory_comes_back_from_the_file(tmp_path: Path) -> None:
    kept = BatchBuffer(1000, tmp_path)
    random_bytes = random.Random(1).randbytes
    payloads = {number: random_bytes(300) for number in range(20)}
    for number, payload in payloads.items():
        kept.put(batch(number), payload)
    assert kept.nbytes == 900
    assert kept.budget.spills == 17
    assert kept.budget.spilled_bytes == 17 * 300
    assert taken(kept) == [("d", number, payload) for number, payload in payloads.items()]
    kept.put(batch(0, epoch=2), b"x" * 900)
    kept.put(batch(1, epoch=2), b"y" * 900)
    assert [payload[:1] for _, _, payload in taken(kept, epoch=2)] == [b"x", b"y"]
    kept.close()


def test_what_was_taken_and_not_used_takes_no_room(tmp_path: Path) -> None:
    kept = BatchBuffer(25, tmp_path)
    for number in range(5):
        kept.put(batch(number), bytes(10))
    assert kept.batches == 5
    for _ in kept.take(Epoch(1), Attempt(0), 0):
        break  # whoever computes has failed
    assert (kept.nbytes, kept.batches) == (0, 0)
    kept.put(batch(0), bytes(20))
    assert kept.nbytes == 20


def test_what_waits_is_counted_by_stage() -> None:
    kept = BatchBuffer(1000)
    for number in range(3):
        kept.put(batch(number), b"1")
    kept.put(batch(0, stage=2), b"1")
    assert kept.waiting() == {0: (30, 3), 2: (10, 1)}
    list(kept.take(Epoch(1), Attempt(0), 0))
    assert kept.waiting() == {0: (0, 0), 2: (10, 1)}


def test_no_room_to_spill_says_where(tmp_path: Path) -> None:
    kept = BatchBuffer(0, Path("/dev/full"))
    with pytest.raises(DiskError, match="no room to spill batches in /dev/full"):
        kept.put(batch(0), b"1")


def test_a_stage_of_which_a_batch_found_no_room_is_never_computed_without_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    kept = BatchBuffer(4, tmp_path / "file")
    kept.put(batch(0), b"held")
    with pytest.raises(DiskError):
        kept.put(batch(1), b"too much")
    with pytest.raises(DiskError, match="no room to spill"):
        taken(kept)
    assert (kept.batches, kept.nbytes, taken(kept)) == (0, 0, [])  # another attempt has other batches
    with pytest.raises(DiskError):
        kept.put(batch(0, attempt=1), b"too much")
    kept.forget(lambda epoch, attempt: attempt < 2)
    assert taken(kept, attempt=1) == []


def test_what_is_forgotten_takes_no_room() -> None:
    kept = BatchBuffer(1000)
    for attempt in range(3):
        kept.put(batch(0, attempt=attempt), b"x" * 400)
    kept.forget(lambda epoch, attempt: attempt < 2)
    assert taken(kept, attempt=0) == []
    assert taken(kept, attempt=2) == [("d", 0, b"x" * 400)]
    assert kept.nbytes == 0
    kept.put(batch(0, epoch=5), b"x" * 1000)
    assert kept.budget.spills == 1, "only the third batch did not fit"
