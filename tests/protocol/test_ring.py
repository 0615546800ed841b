"""Buckets and rings: bounded load, the same table everywhere, few moves, a digest to compare."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from belvedere.protocol import ring
from belvedere.protocol.ring import BUCKETS, MemberId, Ring, RingVersion

SIZES = [*range(1, 21), 27, 32, 50, 64, 100, 127, 128, 129, 200, 256, 300, 399, 400]


def servers(count: int, first: int = 0) -> list[MemberId]:
    return [MemberId(f"viewserver-{i}") for i in range(first, first + count)]


def make(members: list[MemberId], version: int = 1) -> Ring:
    return Ring.of(RingVersion(version), members)


def near(members: list[MemberId]) -> np.ndarray:
    """The name of the first member clockwise of each bucket, found one by one with uhashring itself."""
    circle = ring.uhashring.HashRing(nodes=sorted(members), vnodes=ring.POINTS_PER_MEMBER, hash_fn=ring._point)
    return np.array([circle.get_node(f"bucket {bucket}") for bucket in range(BUCKETS)])


def names(made: Ring) -> np.ndarray:
    return np.array(made.members)[made.table]


@pytest.mark.parametrize("count", SIZES)
def test_every_bucket_has_an_owner_and_nobody_has_more_than_the_limit(count: int) -> None:
    made = make(servers(count))
    assert made.table.shape == (BUCKETS,)
    loads = made.loads()
    assert len(loads) == count and loads.sum() == BUCKETS
    assert loads.max() <= -(-BUCKETS // count) + 1
    assert loads.max() <= 1.1 * BUCKETS / count


def test_a_bucket_goes_to_the_next_member_of_the_circle_unless_that_is_full() -> None:
    members = servers(7)
    made = make(members)
    home = near(members)
    loads = dict(zip(made.members, made.loads(), strict=True))
    refused = np.unique(home[names(made) != home])
    assert len(refused) and all(loads[member] == ring.limit(7) for member in refused)
    for member in members:
        assert (names(made)[home == member] == member).sum() == min(ring.limit(7), (home == member).sum())


def test_the_order_of_members_does_not_matter() -> None:
    members = servers(23)
    expected = make(members)
    for seed in range(5):
        random.Random(seed).shuffle(members)
        assert make(members) == expected
        assert make(members).members == expected.members


def test_another_process_makes_the_same_ring() -> None:
    script = (
        "from belvedere.protocol.ring import Ring\n"
        "import sys\n"
        "sys.stdout.write(Ring.of(3, [f'viewserver-{i}' for i in reversed(range(17))]).digest.hex())"
    )
    root = Path(ring.__file__).parents[2]
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {make(servers(17), 3).digest.hex()}


def test_tables_stay_as_they_are_from_release_to_release() -> None:
    """A change here moves the keys of every running pool: it needs a new protocol version."""
    assert make(servers(5), 7).digest.hex() == "1ef0437e1aa6d6dd7272f162b1d12e93"


@pytest.mark.parametrize("count", [1, 2, 3, 9, 10, 31, 40, 100, 250, 399])
def test_one_more_or_one_less_moves_about_its_share(count: int) -> None:
    few, many = servers(count), servers(count + 1)
    smaller, larger = make(few), make(many)
    joined = ring.moves(smaller, larger)
    left = ring.moves(larger, smaller)
    assert joined.buckets.tolist() == left.buckets.tolist()
    home_few, home_many = near(few), near(many)
    refused = (names(smaller) != home_few).sum() + (names(larger) != home_many).sum()
    assert len(joined) <= (home_many == many[-1]).sum() + refused
    assert len(joined) <= BUCKETS / (count + 1) + 0.04 * BUCKETS
    assert (joined.takers == larger.members.index(many[-1])).sum() == larger.loads()[larger.members.index(many[-1])]


def test_moves_name_who_gives_what_to_whom() -> None:
    old, new = make(servers(5)), make(servers(5, first=2), 2)
    found = ring.moves(old, new)
    before, after = names(old), names(new)
    assert found.buckets.tolist() == [b for b in range(BUCKETS) if before[b] != after[b]]
    pairs = found.pairs()
    assert sum(len(buckets) for buckets in pairs.values()) == len(found)
    for (giver, taker), buckets in pairs.items():
        assert giver != taker
        assert set(before[buckets]) == {giver} and set(after[buckets]) == {taker}
    assert len(ring.moves(old, make(servers(5), 9))) == 0


def test_lookup_of_many_ids_equals_lookup_of_each() -> None:
    made = make(servers(11))
    ids = np.random.default_rng(5).integers(0, 2**64, (2_000, 2), np.uint64)
    expected = [(low + (high << 64)) % 16384 for low, high in ids.tolist()]
    assert ring.buckets_of(ids).tolist() == expected
    assert [made.members[i] for i in made.owners(ids)] == [made.owner(bucket) for bucket in expected]
    assert ring.buckets_of(ids[:0]).shape == (0,)


def test_owned_buckets_partition_the_whole() -> None:
    made = make(servers(6))
    parts = [made.owned(member) for member in made.members]
    assert sorted(np.concatenate(parts).tolist()) == list(range(BUCKETS))
    assert len(made.owned(MemberId("somebody else"))) == 0


@pytest.mark.parametrize("count", [1, 3, 400])
def test_a_digest_differs_if_anything_does(count: int) -> None:
    names = [*servers(count - 1), MemberId("ühler, 10.0.0.7:4711")]
    made = make(names, 2**40)
    assert made == make(names[::-1], 2**40) and made.digest == make(names, 2**40).digest
    assert made.digest == make(names, 1).digest != make(servers(count), 1).digest and made != make(names, 1)
    table = made.table.copy()
    table[7] = (int(table[7]) + 1) % max(2, count)
    assert Ring(made.version, made.members, table).digest != made.digest


def test_a_ring_cannot_be_changed() -> None:
    made = make(servers(3))
    with pytest.raises(ValueError, match="read-only"):
        made.table[0] = 1


def test_members_must_be_a_set_and_not_empty() -> None:
    with pytest.raises(ValueError, match="found 0 members"):
        make([])
    with pytest.raises(ValueError, match="'viewserver-1' is there twice"):
        make([*servers(3), MemberId("viewserver-1")])
    with pytest.raises(ValueError, match="NUL"):
        make([MemberId("a\0b")])
