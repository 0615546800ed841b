"""What the ring costs: making one, looking owners up, and how many buckets one more member moves.

PYTHONPATH=viewserver python bench/micro_ring.py [ids]
"""

from __future__ import annotations

import sys
import time

import numpy as np

from belvedere.protocol import ring


def main(count: int) -> None:
    ids = np.random.default_rng(0).integers(0, 2**64, (count, 2), np.uint64)
    print("members  make ms  lookup ns/id  moved by one more, of the least possible  busiest / mean")
    for members in (1, 3, 10, 40, 100, 399):
        names = [ring.MemberId(f"viewserver-{i}") for i in range(members + 1)]
        start = time.process_time()
        made = ring.Ring.of(ring.RingVersion(1), names[:members])
        built = time.process_time() - start
        start = time.process_time()
        made.owners(ids)
        found = (time.process_time() - start) / count
        moved = len(ring.moves(made, ring.Ring.of(ring.RingVersion(2), names))) * (members + 1) / ring.BUCKETS
        busiest = made.loads().max() * members / ring.BUCKETS
        print(f"{members:7}  {built * 1e3:7.1f}  {found * 1e9:12.2f}  {moved:41.2f}  {busiest:14.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000)
