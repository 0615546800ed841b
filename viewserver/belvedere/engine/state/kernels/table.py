"""Kernels of the hash index: open addressing over entries of eight bytes.

An entry is (fingerprint << 32 | slot + 1); 0 is empty. The home position of a fingerprint f in a table of n entries is
f * n >> 32, so a table of any size works and a rehash visits old and new table almost in order. Removal shifts the
entries behind it back, so there are no markers to clean. Equal fingerprints are told apart by the id kept per slot.

`ctl` counts: 0 slots ever used, 1 free slots, 2 live ids, 3 slots freed since the last end of an epoch.
"""

from __future__ import annotations

import numpy as np

from belvedere.engine.state.jit import BLOCK, kernel, part, prefetch

_U = np.uint64
_S32 = _U(32)
_LOW = _U(0xFFFFFFFF)
_ZERO = _U(0)

USED = 0
FREE = 1
LIVE = 2
PENDING = 3


@part
def home(entries, f):  # type: ignore[no-untyped-def]
    """Where the search for fingerprint `f` begins."""
    return np.int64((f * _U(entries.shape[0])) >> _S32)


@part
def candidate(entries, f):  # type: ignore[no-untyped-def]
    """Position of the first entry, from home on, that is empty or has fingerprint `f`."""
    p = home(entries, f)
    n = entries.shape[0]
    e = entries[p]
    while e != _ZERO and (e >> _S32) != f:
        p += 1
        if p == n:
            p = 0
        e = entries[p]
    return p


@part
def aim(entries, ids, pos, j, lo):  # type: ignore[no-untyped-def]
    """Second stage of a block: note the candidate of row j and ask for the id it refers to."""
    p = candidate(entries, lo >> _S32)
    pos[j] = p
    e = entries[p]
    if e != _ZERO:
        prefetch(ids, np.int64(e & _LOW) - 1)


@part
def locate(entries, ids, p, lo, hi):  # type: ignore[no-untyped-def]
    """(slot or -1, position of its entry or of the empty entry where it belongs), searching from `p`: home, or a
    candidate found since the last removal (insertions move nothing, removals do)."""
    f = lo >> _S32
    n = entries.shape[0]
    s = np.int64(-1)
    while True:
        e = entries[p]
        if e == _ZERO:
            break
        if (e >> _S32) == f:
            t = np.int64(e & _LOW) - 1
            if ids[t, 0] == lo and ids[t, 1] == hi:
                s = t
                break
        p += 1
        if p == n:
            p = 0
    return s, p


@part
def allocate(free, ctl):  # type: ignore[no-untyped-def]
    """A slot: the one freed last, else the next unused one."""
    if ctl[FREE] > 0:
        ctl[FREE] -= 1
        return np.int64(free[ctl[FREE]])
    s = ctl[USED]
    ctl[USED] = s + 1
    return s


@part
def enter(entries, ids, free, ctl, p, lo, hi):  # type: ignore[no-untyped-def]
    """Give a new id a slot; `p` is the empty entry that `locate` found."""
    s = allocate(free, ctl)
    ids[s, 0] = lo
    ids[s, 1] = hi
    entries[p] = (lo & ~_LOW) | _U(s + 1)
    ctl[LIVE] += 1
    return s


@part
def erase(entries, p):  # type: ignore[no-untyped-def]
    """Remove the entry at `p`, moving back those behind it that would no longer be found."""
    n = entries.shape[0]
    hole = p
    q = p
    while True:
        q += 1
        if q == n:
            q = 0
        e = entries[q]
        if e == _ZERO:
            break
        # the entry may move into the hole unless its home lies cyclically in (hole, q]
        h = home(entries, e >> _S32)
        if q > hole:
            if hole < h and h <= q:
                continue
        elif h > hole or h <= q:
            continue
        entries[hole] = e
        hole = q
    entries[hole] = _ZERO


@part
def drop(entries, pending, ctl, p, s):  # type: ignore[no-untyped-def]
    """Forget the id at entry `p`; its slot stays readable until the epoch ends."""
    erase(entries, p)
    pending[ctl[PENDING]] = s
    ctl[PENDING] += 1
    ctl[LIVE] -= 1


@kernel("u8[:] u8[:,:] u8[:,:] i4[:]")
def find_ids(entries, ids, wanted, out):  # type: ignore[no-untyped-def]
    n = wanted.shape[0]
    pos = np.empty(BLOCK, np.int64)
    for b in range(0, n, BLOCK):
        stop = min(b + BLOCK, n)
        for i in range(b, stop):
            prefetch(entries, home(entries, wanted[i, 0] >> _S32))
        for i in range(b, stop):
            aim(entries, ids, pos, i - b, wanted[i, 0])
        for i in range(b, stop):
            s, _ = locate(entries, ids, pos[i - b], wanted[i, 0], wanted[i, 1])
            out[i] = s


@kernel("u8[:] u8[:,:] u8 u8")
def find_one(entries, ids, lo, hi):  # type: ignore[no-untyped-def]
    s, _ = locate(entries, ids, home(entries, lo >> _S32), lo, hi)
    return s


@kernel("u8[:] u8[:,:] i4[:] i8[:] u8[:,:] i4[:] b1[:]")
def insert_ids(entries, ids, free, ctl, wanted, out, fresh):  # type: ignore[no-untyped-def]
    n = wanted.shape[0]
    pos = np.empty(BLOCK, np.int64)
    for b in range(0, n, BLOCK):
        stop = min(b + BLOCK, n)
        for i in range(b, stop):
            prefetch(entries, home(entries, wanted[i, 0] >> _S32))
        for i in range(b, stop):
            aim(entries, ids, pos, i - b, wanted[i, 0])
        for i in range(b, stop):
            s, p = locate(entries, ids, pos[i - b], wanted[i, 0], wanted[i, 1])
            fresh[i] = s < 0
            if s < 0:
                s = enter(entries, ids, free, ctl, p, wanted[i, 0], wanted[i, 1])
            out[i] = s


@kernel("u8[:] u8[:,:] i4[:] i8[:] u8[:,:] i4[:]")
def remove_ids(entries, ids, pending, ctl, wanted, out):  # type: ignore[no-untyped-def]
    n = wanted.shape[0]
    pos = np.empty(BLOCK, np.int64)
    for b in range(0, n, BLOCK):
        stop = min(b + BLOCK, n)
        for i in range(b, stop):
            prefetch(entries, home(entries, wanted[i, 0] >> _S32))
        for i in range(b, stop):
            aim(entries, ids, pos, i - b, wanted[i, 0])
        moved = False
        for i in range(b, stop):
            start = home(entries, wanted[i, 0] >> _S32) if moved else pos[i - b]
            s, p = locate(entries, ids, start, wanted[i, 0], wanted[i, 1])
            if s >= 0:
                moved = True
                drop(entries, pending, ctl, p, s)
            out[i] = s


@kernel("u8[:] i8 u8[:]")
def expand(entries, old, stash):  # type: ignore[no-untyped-def]
    """Grow the table in place from `old` entries to all of `entries`, so that growing touches no memory twice.

    The entries are packed against the end first, then dealt out from there. Homes grow with position, so an entry's new
    place lies before the packed ones that wait, but for a few near the end (and those that had wrapped around): these
    go through `stash`."""
    n = entries.shape[0]
    to = n
    for p in range(old - 1, -1, -1):
        e = entries[p]
        if e != _ZERO:
            to -= 1
            entries[to] = e
    for p in range(to):
        entries[p] = _ZERO
    m = 0
    for c in range(to, n):
        e = entries[c]
        entries[c] = _ZERO
        p = home(entries, e >> _S32)
        while p <= c and entries[p] != _ZERO:
            p += 1
        if p > c:
            stash[m] = e
            m += 1
        else:
            entries[p] = e
    for j in range(m):
        p = home(entries, stash[j] >> _S32)
        while entries[p] != _ZERO:
            p += 1
            if p == n:
                p = 0
        entries[p] = stash[j]


@kernel("u8[:] u8[:,:] i8")
def rebuild(entries, ids, used):  # type: ignore[no-untyped-def]
    """Entries from the ids of slots; a zero id is a free slot."""
    n = entries.shape[0]
    for s in range(used):
        lo = ids[s, 0]
        if lo != _ZERO or ids[s, 1] != _ZERO:
            p = home(entries, lo >> _S32)
            while entries[p] != _ZERO:
                p += 1
                if p == n:
                    p = 0
            entries[p] = (lo & ~_LOW) | _U(s + 1)


@kernel("u8[:,:] i4[:] i4[:] i8[:]")
def settle(ids, free, pending, ctl):  # type: ignore[no-untyped-def]
    """End of an epoch: freed slots become reusable, and their ids zero so that scans by slot skip them."""
    n = ctl[PENDING]
    f = ctl[FREE]
    for i in range(n):
        if i + 16 < n:
            prefetch(ids, np.int64(pending[i + 16]))
        s = pending[i]
        ids[s, 0] = _ZERO
        ids[s, 1] = _ZERO
        free[f + i] = s
    ctl[FREE] = f + n
    ctl[PENDING] = 0


@kernel("u8[:,:] i4[:] u8[:,:]")
def gather_ids(ids, slots, out):  # type: ignore[no-untyped-def]
    n = slots.shape[0]
    for i in range(n):
        if i + 16 < n:
            prefetch(ids, np.int64(slots[i + 16]))
        s = slots[i]
        out[i, 0] = ids[s, 0]
        out[i, 1] = ids[s, 1]


@kernel("u8[:,:] i8 i8 i4[:]")
def live_slots(ids, start, stop, out):  # type: ignore[no-untyped-def]
    n = 0
    for s in range(start, stop):
        if ids[s, 0] != _ZERO or ids[s, 1] != _ZERO:
            out[n] = s
            n += 1
    return n


@kernel("u8[:] u8[:,:] i4[:] i4[:] i8[:] u1[:] u8[:,:] i1[:] i4[:]")
def upsert(entries, ids, free, pending, ctl, touched, wanted, weight, slots):  # type: ignore[no-untyped-def]
    """Apply the ids of a consolidated delta: first its +1 rows (marked in the bitmap `touched`), then those -1 rows
    which no +1 row replaces. Rows of weight 0 are passed over.
    `slots`: where each row is or was (-1: a removed row that was not there). Returns removed
    rows."""
    n = wanted.shape[0]
    pos = np.empty(BLOCK, np.int64)
    removals = 0
    for b in range(0, n, BLOCK):
        stop = min(b + BLOCK, n)
        for i in range(b, stop):
            if weight[i] > 0:
                prefetch(entries, home(entries, wanted[i, 0] >> _S32))
        for i in range(b, stop):
            if weight[i] > 0:
                aim(entries, ids, pos, i - b, wanted[i, 0])
        for i in range(b, stop):
            if weight[i] > 0:
                s, p = locate(entries, ids, pos[i - b], wanted[i, 0], wanted[i, 1])
                if s < 0:
                    s = enter(entries, ids, free, ctl, p, wanted[i, 0], wanted[i, 1])
                slots[i] = s
                touched[s >> 3] |= np.uint8(1 << (s & 7))
            elif weight[i] < 0:
                removals += 1
    if removals == 0:
        for i in range(n):
            if weight[i] > 0:
                touched[slots[i] >> 3] = 0
        return 0
    removed = 0
    for b in range(0, n, BLOCK):
        stop = min(b + BLOCK, n)
        for i in range(b, stop):
            if weight[i] < 0:
                prefetch(entries, home(entries, wanted[i, 0] >> _S32))
        for i in range(b, stop):
            if weight[i] < 0:
                aim(entries, ids, pos, i - b, wanted[i, 0])
        moved = False
        for i in range(b, stop):
            if weight[i] < 0:
                start = home(entries, wanted[i, 0] >> _S32) if moved else pos[i - b]
                s, p = locate(entries, ids, start, wanted[i, 0], wanted[i, 1])
                slots[i] = s
                if s >= 0 and touched[s >> 3] & np.uint8(1 << (s & 7)) == 0:
                    drop(entries, pending, ctl, p, s)
                    moved = True
                    removed += 1
    for i in range(n):
        if weight[i] > 0:
            touched[slots[i] >> 3] = 0
    return removed
