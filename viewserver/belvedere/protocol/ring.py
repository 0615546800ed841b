"""Buckets and the ring: which view server owns which keys, one immutable table per ring version.

A key belongs to one of 16,384 buckets, `id % 16384`, and a `Ring` says who owns each bucket. Members and buckets are
points on a circle (uhashring places the members, 160 points each); a bucket goes to the first member clockwise that has
room for it, where room is `ceil(buckets / members) + 1`. Without the bound the busiest of many servers has a multiple
of the mean, and an epoch is as slow as its busiest server.

Places are given in rounds: every bucket asks the member at its own point first, and only those refused ask the next one
on. So a member that moves in takes buckets that are near it, and a bucket that neither ring had to refuse stays:

    moved <= buckets near the member that joined or left + refused at home in the old ring + refused at home in the new

The last two terms are the price of the bound. Measured (bench/micro_ring.py), one member added to n: 1.07 times the
unavoidable 1/(n+1) at n = 3, 1.3 at 10, 1.6 at 40, 2 at 100; at 399 it is 2 % of the buckets, since a mean of 41 leaves
room for only 2 more.

Why it is safe: the table is a function of the set of members alone, of nothing random and nothing that happened before,
so every process that knows the members computes the same bytes. That they did (and not two versions of a library, two
rings) is seen from `digest`, which every report of batches carries and the leader's barrier compares. A ring is never
changed; a change of members is another ring with a greater version, and `moves` says what lies between the two.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NewType

import numpy as np
import uhashring
import xxhash

MemberId = NewType("MemberId", str)
RingVersion = NewType("RingVersion", int)

BUCKETS = 16_384
POINTS_PER_MEMBER = 160

Array = np.ndarray[Any, np.dtype[Any]]

_MASK = np.uint64(BUCKETS - 1)
_FIXED = struct.Struct("<HI")


def buckets_of(ids: Array) -> Array:
    """Buckets (uint16[n]) of row or key ids (uint64[n, 2], the low word first).

    The low bits of the low word are free for this: the hash index inside a server looks at the high ones, so the keys
    of one bucket do not crowd together there.
    """
    low: Array = ids[:, 0] & _MASK
    return low.astype(np.uint16)


def limit(members: int) -> int:
    """The most buckets that one of so many members may own."""
    return -(-BUCKETS // members) + 1


@dataclass(frozen=True, eq=False)
class Ring:
    """Who owns each bucket: `members[table[bucket]]`. Members are sorted; the table (uint16[16384]) is read-only."""

    version: RingVersion
    members: tuple[MemberId, ...]
    table: Array

    @classmethod
    def of(cls, version: RingVersion, members: Iterable[MemberId]) -> Ring:
        """The ring of these members, whatever order they are given in."""
        names = sorted(members)
        if not 1 <= len(names) <= BUCKETS:
            raise ValueError(f"ring {version}: found {len(names)} members, a ring has 1 to {BUCKETS}")
        for name, following in itertools.pairwise(names):
            if name == following:
                raise ValueError(f"ring {version}: member {name!r} is there twice, members are a set")
        if any(not name or "\0" in name for name in names):
            raise ValueError(f"ring {version}: a member's name is empty or has a NUL in it, found {names!r}")
        return cls(version, tuple(names), _spread(tuple(names)))

    def owners(self, ids: Array) -> Array:
        """Positions in `members` (uint16[n]) of the owners of these row or key ids (uint64[n, 2])."""
        found: Array = self.table[buckets_of(ids)]
        return found

    def owner(self, bucket: int) -> MemberId:
        return self.members[int(self.table[bucket])]

    def owned(self, member: MemberId) -> Array:
        """The buckets of one member, ascending; none if it is not on this ring."""
        if member not in self.members:
            return np.empty(0, np.int64)
        return np.flatnonzero(self.table == self.members.index(member))

    def loads(self) -> Array:
        """Buckets per member, in the order of `members`."""
        return np.bincount(self.table, minlength=len(self.members))

    @functools.cached_property
    def digest(self) -> bytes:
        """16 bytes that differ if members or owners do, for members to agree on."""
        names = "\0".join(self.members).encode()
        fixed = _FIXED.pack(len(self.members), len(names))
        return hashlib.blake2b(fixed + names + self.table.astype("<u2").tobytes(), digest_size=16).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ring) and (self.version, self.digest) == (other.version, other.digest)

    def __hash__(self) -> int:
        return hash((self.version, self.digest))


@dataclass(frozen=True, eq=False)
class Moves:
    """The buckets (ascending) whose owner differs, with positions in the members of either ring."""

    old: Ring
    new: Ring
    buckets: Array
    givers: Array
    takers: Array

    def __len__(self) -> int:
        return len(self.buckets)

    def pairs(self) -> dict[tuple[MemberId, MemberId], Array]:
        """Buckets by (giver, taker): what each two members have to settle between them."""
        found: dict[tuple[MemberId, MemberId], Array] = {}
        both = self.givers.astype(np.int64) * len(self.new.members) + self.takers
        for code in np.unique(both).tolist():
            giver, taker = divmod(code, len(self.new.members))
            found[self.old.members[giver], self.new.members[taker]] = self.buckets[both == code]
        return found


def moves(old: Ring, new: Ring) -> Moves:
    """What changes hands between two rings. Members are compared by name: their positions differ from ring to ring."""
    position = {member: i for i, member in enumerate(new.members)}
    renamed = np.array([position.get(member, -1) for member in old.members], np.int64)
    buckets = np.flatnonzero(renamed[old.table] != new.table)
    return Moves(old, new, buckets, old.table[buckets], new.table[buckets])


@functools.lru_cache(maxsize=64)
def _spread(members: tuple[MemberId, ...]) -> Array:
    """Owner (position in `members`) of each bucket. Kept for a while: 0.1 s for 400 members, and pools come back to
    the sets of members that they had."""
    points, owners = _circle(members)
    places = _bucket_points()
    at = np.searchsorted(points, places, side="right") % len(points)
    table = np.zeros(BUCKETS, np.uint16)
    room = np.full(len(members), limit(len(members)), np.int64)
    asking = np.argsort(places, kind="stable")
    while len(asking):
        asked = owners[at[asking]]
        by_member = np.argsort(asked, kind="stable")
        grouped = asked[by_member]
        turn = np.empty(len(asking), np.int64)  # how many ask the same member in this round before this one
        turn[by_member] = np.arange(len(grouped)) - np.searchsorted(grouped, grouped, side="left")
        accepted = turn < room[asked]
        table[asking[accepted]] = asked[accepted]
        room -= np.bincount(asked[accepted], minlength=len(members))
        asking = asking[~accepted]
        at[asking] = (at[asking] + 1) % len(points)
    table.flags.writeable = False
    return table


def _circle(members: tuple[MemberId, ...]) -> tuple[Array, Array]:
    """The points of the members on the circle, ascending, and whose each is."""
    circle = uhashring.HashRing(nodes=list(members), vnodes=POINTS_PER_MEMBER, hash_fn=_point)
    position = {member: i for i, member in enumerate(members)}
    placed = circle.get_points()
    points = np.array([point for point, _ in placed], np.uint64)
    return points, np.array([position[member] for _, member in placed], np.int64)


@functools.lru_cache(maxsize=1)
def _bucket_points() -> Array:
    return np.array([_point(f"bucket {bucket}") for bucket in range(BUCKETS)], np.uint64)


def _point(name: str) -> int:
    """A place on the circle. Not Python's hash, which differs between processes."""
    return xxhash.xxh3_64_intdigest(name.encode())
