"""A process that writes base rows until somebody kills it: two threads, each with keys of its own.

Arguments: directory, number of the first call. Each line of its output is a JSON list: [thread, acknowledged call].
"""

from __future__ import annotations

import json
import random
import sys
import threading

from belvedere.backend.served.lmdb_store import LmdbStore
from tests.backend.served.base_changes import ORDERS, Change, changes_of

THREADS = 2
KEYS = 25


def call(thread: int, number: int) -> list[Change]:
    """What a call writes: its number under one key, and anything under some others."""
    rng = random.Random(f"{thread}/{number}")
    found = [Change(thread, {"a": number})]
    for key in rng.sample(range(1, KEYS), rng.randrange(1, 6)):
        cells = rng.choice(({"a": number}, {"b": str(number)}, {"a": None, "b": "x"}, None))
        found.append(Change(key * THREADS + thread, cells))
    return found


def main(path: str, first: int) -> None:
    store = LmdbStore(path, map_size=1 << 20)
    store.base.create_table(ORDERS)
    said = threading.Lock()

    def work(thread: int) -> None:
        number = first
        while True:
            store.base.put("orders", changes_of(call(thread, number)))
            with said:
                print(json.dumps([thread, number]), flush=True)
            number += 1

    for thread in range(THREADS):
        threading.Thread(target=work, args=(thread,)).start()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
