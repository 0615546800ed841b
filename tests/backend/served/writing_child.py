"""A process that writes to a store until somebody kills it, saying after each call what was acknowledged.

Arguments: directory, number of the first epoch. Three threads, so that commits are shared. Each line of its output is a
JSON list: [thread, epoch].
"""

from __future__ import annotations

import json
import sys
import threading

from belvedere.backend.seam import TableWrite
from belvedere.backend.served.lmdb_store import LmdbStore
from belvedere.protocol.exactly_once import Chunk, ChunkId, Seq, SourceId, WriterId
from tests.backend.conformance.rows import ids, values

THREADS = 3
ROWS = 20


def value(thread: int, epoch: int, row: int) -> bytes | None:
    return None if (epoch + row) % 7 == 0 else b"%d/%d/%d" % (thread, epoch, row) * 5


def write(store: LmdbStore, thread: int, epoch: int) -> None:
    content = values(*(value(thread, epoch, row) for row in range(ROWS)))
    store.write(epoch, [TableWrite(f"t{thread}", ids(*range(ROWS)), content, logged=True)])
    id = ChunkId(WriterId(f"w{thread}"), epoch)
    store.put_chunks([(Chunk(id, SourceId("s"), Seq(epoch), Seq(epoch)), b"%d" % epoch * 100)])
    store.put_document(f"d{thread}", b"%d" % epoch)


def main(path: str, first: int) -> None:
    store = LmdbStore(path, map_size=1 << 20, collect_pause=0.0, merge_rows=300)
    said = threading.Lock()

    def work(thread: int) -> None:
        epoch = first
        while True:
            write(store, thread, epoch)
            with said:
                print(json.dumps([thread, epoch]), flush=True)
            if thread == 0 and epoch % 5 == 0:
                store.collect(epoch - 3, 0)
            epoch += 1

    for thread in range(THREADS):
        threading.Thread(target=work, args=(thread,)).start()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
