"""Runs in a pod: plants a wrong row in the stored rows of a view, as a lost write leaves it, and takes it back.

    python - plant VIEW | undo VIEW ID EPOCH VALUE KEY

`plant` gives the first row the values of the second one, and prints what `undo` needs as JSON.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from typing import Any

import numpy as np
import pyarrow as pa

import belvedere
from belvedere.cluster.client.reading import decode
from belvedere.engine.exchange import TableWrite
from belvedere.model.keys import key_codec
from belvedere.protocol.ring import BUCKETS


def connected() -> Any:
    names = {"certificate": "CERTIFICATE", "key": "KEY", "authority": "AUTHORITY", "server_name": "SERVER_NAME"}
    files = {name: os.environ[f"BELVEDERE_TLS_{variable}"] for name, variable in names.items()}
    return belvedere.connect(os.environ["BELVEDERE_URL"], **files)  # type: ignore[arg-type]


def main(command: str, view: str, *words: str) -> None:
    with connected() as db:
        deadline = db.deadline()
        known = db.epochs.newest(deadline)
        served = db.epochs.named(view, known.committed, deadline)
        store = db.stores(deadline)
        pieces = list(store.scan(served.rows_table, 0, BUCKETS, known.epoch + 1))
        ids = np.concatenate([piece[0] for piece in pieces])
        values = pa.concat_arrays([piece[1] for piece in pieces])
        codec = key_codec(served.shape.schema, served.shape.key)
        rows = decode(served, ids, values)
        keys = codec.encode([rows.columns[i].to_arrow() for i in served.shape.key], len(rows.columns[0]))
        if command == "plant":
            at, epoch, value = 0, known.epoch, values[1].as_py()
        else:
            wanted = np.frombuffer(bytes.fromhex(words[0]), np.uint64)
            at, epoch = int(np.flatnonzero((ids == wanted).all(axis=1))[0]), int(words[1])
            value = base64.b64decode(words[2])
        key = base64.b64decode(words[3]) if command == "undo" else keys[at].as_py()
        write = TableWrite(
            served.rows_table,
            np.ascontiguousarray(ids[at : at + 1]),
            pa.array([value], values.type),
            keys=pa.array([key], keys.type),
            shape=served.shape,
        )
        store._try("planting a row", lambda stored: stored.write(epoch, [write]))
        before = base64.b64encode(values[at].as_py()).decode()
        told = {"id": ids[at].tobytes().hex(), "epoch": epoch, "value": before, "key": base64.b64encode(key).decode()}
        print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
