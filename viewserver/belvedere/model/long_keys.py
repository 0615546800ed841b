"""Keys of any length in a store that limits them (LMDB: 511 bytes, HBase: 32,767): hashed behind an ordered prefix.

A key shorter than the cut (the limit less 16 bytes) is stored as it is. A longer one is stored as its first bytes up to
the cut and a hash of the whole, and the whole key is kept with the row. Stored keys sort as the keys do, but for those
that agree up to the cut: these stand together, have the limit as their length, and whoever reads in order sorts such a
run by the whole keys. A run is as long as there are keys that agree in so many bytes, which is rare and the price of a
limit that users do not meet.
"""

from __future__ import annotations

from hashlib import blake2b

HASH_BYTES = 16


def stored_key(key: bytes, limit: int) -> bytes:
    """The key as a store with this limit keeps it."""
    cut = limit - HASH_BYTES
    return key if len(key) < cut else key[:cut] + blake2b(key, digest_size=HASH_BYTES).digest()


def is_hashed(stored: bytes, limit: int) -> bool:
    """Whether the whole key is found with the row only. Stored keys of one run agree in all but their hash."""
    return len(stored) == limit


def run_of(stored: bytes) -> bytes:
    """What the stored keys of a run have in common."""
    return stored[:-HASH_BYTES]


def seek_key(bound: bytes, limit: int) -> bytes:
    """Where reading from a bound on begins, and up to a bound ends: no stored key of a key at or above the bound stands
    before it. Of the run that it points into, whole keys decide."""
    return bound[: limit - HASH_BYTES]
