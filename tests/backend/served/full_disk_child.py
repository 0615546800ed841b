"""Fills a store until the operating system refuses to write, makes room, and goes on. Says "fine" if all went well."""

from __future__ import annotations

import resource
import sys

import numpy as np
import pyarrow as pa

from belvedere.backend.seam import TableWrite
from belvedere.backend.served.lmdb_store import LmdbStore
from belvedere.errors import StoreUnavailable

ROWS = 500


def write(store: LmdbStore, epoch: int) -> None:
    keys = np.random.default_rng(epoch).integers(0, 2**64, (ROWS, 2), np.uint64)
    store.write(epoch, [TableWrite("t", keys, pa.array([b"%400d" % epoch] * ROWS, pa.binary()))])
    store.put_document(f"epoch/{epoch:06}", b"x" * 3000)


def count(store: LmdbStore, epoch: int) -> int:
    return sum(len(keys) for keys, _ in store.scan("t", 0, 16_384, epoch + 1))


def main(path: str) -> None:
    store = LmdbStore(path, map_size=1 << 20, merge_rows=800)
    write(store, 1)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6 << 20, hard))
    epoch = 1
    try:
        while epoch < 1000:
            write(store, epoch + 1)
            epoch += 1
        raise AssertionError("the limit was never reached")
    except StoreUnavailable as error:
        assert "cannot write" in str(error) and "full" in str(error) and path in str(error), str(error)
    there = count(store, epoch + 1)
    assert there in (ROWS * epoch, ROWS * (epoch + 1)), f"{there} rows after {epoch} writes"
    assert len(store.list_documents("epoch/")) == epoch
    for _ in range(3):
        try:
            write(store, epoch + 1)
        except StoreUnavailable:
            continue
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    for later in range(epoch + 1, epoch + 20):
        write(store, later)
    assert count(store, epoch + 19) == ROWS * (epoch + 19)
    store.close()
    again = LmdbStore(path)
    assert count(again, epoch + 19) == ROWS * (epoch + 19)
    again.close()
    print("fine")


if __name__ == "__main__":
    main(sys.argv[1])
