"""Slots in the order of their keys: equal to sorting, whatever came and went."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from belvedere.engine.state.ordered import KeyOrder, SortedSlots, sort_keys

ALPHABETS = [b"\0\1", b"ab\xff", bytes(range(256))]


def random_key(random: Random, alphabet: bytes, longest: int) -> bytes:
    return bytes(random.choices(alphabet, k=random.randint(0, longest)))


def binary(keys: list[bytes]) -> pa.BinaryArray:
    return pa.array(keys, pa.binary())


def check(order: SortedSlots, rows: dict[int, bytes], random: Random, probes: list[bytes]) -> None:
    expected = sorted(rows, key=lambda s: rows[s])
    assert order.select(b"", None, None, False).tolist() == expected
    for _ in range(6):
        low, high = random.choice(probes), random.choice([None, *probes])
        limit, reverse = random.choice([None, 0, 1, 3, 1000]), random.random() < 0.5
        within = [s for s in expected if rows[s] >= low and (high is None or rows[s] < high)]
        within = (within[::-1] if reverse else within)[:limit]
        assert order.select(low, high, limit, reverse).tolist() == within


@pytest.mark.parametrize("seed", range(6))
def test_slots_are_selected_as_if_sorted_while_they_come_and_go(seed: int) -> None:
    random = Random(seed)
    alphabet, longest = ALPHABETS[seed % 3], random.choice([3, 12, 40])
    rows: dict[int, bytes] = {}
    taken: set[bytes] = set()
    order = SortedSlots()
    for step in range(12):
        fresh: dict[int, bytes] = {}
        for slot in range(step * 1000, step * 1000 + random.choice([1, 10, 600])):
            key = random_key(random, alphabet, longest)
            if key not in taken:
                fresh[slot] = key
                taken.add(key)
        rows |= fresh
        if fresh:
            order.insert(np.array(list(fresh), np.int32), binary(list(fresh.values())))
        gone = random.sample(sorted(rows), random.choice([0, len(rows) // 3, len(rows) * 9 // 10]))
        order.remove(np.array(gone, np.int32))
        for slot in gone:
            taken.discard(rows.pop(slot))
        check(order, rows, random, [random_key(random, alphabet, longest) for _ in range(8)])
    order.remove(np.array(sorted(rows), np.int32))
    assert order.select(b"", None, None, False).tolist() == []


@pytest.mark.parametrize("seed", range(3))
def test_a_load_is_a_sort_and_can_be_changed(seed: int) -> None:
    random = Random(seed)
    keys = sorted({random_key(random, ALPHABETS[seed], 30) for _ in range(3000)})
    random.shuffle(keys)
    pieces = [keys[:100], keys[100:2000], keys[2000:]]
    slots = [np.arange(0, 100), np.arange(100, 2000), np.arange(2000, len(keys))]
    order = SortedSlots.of(
        [s[: len(p)].astype(np.int32) for s, p in zip(slots, pieces, strict=True)], list(map(binary, pieces))
    )
    rows = dict(enumerate(keys))
    check(order, rows, random, keys[:20])
    gone = random.sample(sorted(rows), len(rows) // 2)
    order.remove(np.array(gone, np.int32))
    for slot in gone:
        del rows[slot]
    check(order, rows, random, keys[:20])


@pytest.mark.parametrize("step", [1, -1])
def test_keys_that_come_in_order_are_kept_in_order(step: int) -> None:
    order = SortedSlots()
    rows: dict[int, bytes] = {}
    for start in range(0, 3000, 500):
        slots = np.arange(start, start + 500, dtype=np.int32)
        keys = [(100_000 + step * int(s)).to_bytes(8, "big") for s in slots]
        rows |= dict(zip(slots.tolist(), keys, strict=True))
        order.insert(slots, binary(keys))
    check(order, rows, Random(1), list(rows.values())[:20])
    assert order.blocks <= (12 if step == 1 else 24)  # of 256: ascending keys leave full blocks behind


def test_long_keys_and_empty_ones_are_compared_to_their_end() -> None:
    keys = [
        b"",
        b"\0",
        b"\0" * 8,
        b"\0" * 9,
        b"\0" * 20,
        b"a" * (1 << 23),
        b"a" * (1 << 23) + b"b",
        b"a" * 16,
        b"a" * 17,
    ]
    order = SortedSlots.of([np.arange(len(keys), dtype=np.int32)], [binary(keys)])
    expected = sorted(range(len(keys)), key=lambda s: keys[s])
    assert order.select(b"", None, None, False).tolist() == expected
    assert order.select(keys[5], None, None, False).tolist() == [5, 6]
    assert sort_keys(binary(keys)).tolist() == expected
    again = SortedSlots()
    again.insert(np.arange(len(keys), dtype=np.int32), binary(keys))
    assert again.select(b"", None, None, False).tolist() == expected


@pytest.mark.parametrize("seed", range(4))
def test_noted_slots_are_settled_whatever_happened_to_them_meanwhile(seed: int) -> None:
    random = Random(seed)
    table: dict[int, bytes] = {}
    order = KeyOrder()
    built: SortedSlots | None = None
    for step in range(40):
        for _ in range(random.choice([1, 20, 3000])):
            slot = random.randrange(4000)
            if slot in table and random.random() < 0.4:
                del table[slot]
                order.removed(np.array([slot], np.int32), 4000)
            else:
                if slot not in table:
                    table[slot] = random_key(random, b"abc", 9) + slot.to_bytes(2, "big")
                order.written(np.array([slot, -1], np.int32), 4000)
        if step == 5:
            slots = np.array(sorted(table), np.int32)
            built = SortedSlots.of([slots], [binary([table[s] for s in slots.tolist()])])
            order.install(built, [slots], 4000)
        if step >= 5 and random.random() < 0.7:
            while (
                order.settle(
                    lambda s: np.array([x in table for x in s.tolist()], np.bool_),
                    lambda s: binary([table[x] for x in s.tolist()]),
                )
                is None
            ):
                pass
            assert built is not None
            assert built.select(b"", None, None, False).tolist() == sorted(table, key=lambda s: table[s])


def test_updates_that_keep_their_key_are_not_noted() -> None:
    order = KeyOrder()
    slots = np.arange(10, dtype=np.int32)
    order.install(SortedSlots.of([slots], [binary([bytes([s]) for s in range(10)])]), [slots], 10)
    order.written(slots, 10)
    assert order.behind == 0
    order.removed(slots[:2], 10)
    order.written(slots[:2], 10)
    assert order.behind == 2


def test_memory_is_that_of_the_slots_and_not_of_what_is_reserved_for_more() -> None:
    order = KeyOrder()
    slots = np.arange(3_000_000, dtype=np.int32)
    order.written(slots, len(slots))
    assert order.nbytes() < 20_000_000
