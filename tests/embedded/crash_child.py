"""A nursery for the crash test: imports and warms everything once, then forks a writer for each life.

Commands on standard input, one JSON object per line: {"path", "acknowledged", "seed"}; answers {"pid"}, and
{"status"} when the child is gone. A writer first checks the whole database against a model, then writes until
somebody kills it.
"""

from __future__ import annotations

import json
import os
import random
import sys
import traceback

import belvedere
from belvedere.embedded.database import Database

OPTIONS = {"snapshot_bytes": 30_000, "segment_bytes": 20_000, "epoch_rows": 50, "build_rows": 64}
VIEWS = {
    "sums": "SELECT g, count(*) AS n, sum(v) AS total FROM t GROUP BY g",
    "big": "SELECT id, v, s FROM t WHERE v > 50",
    "top": "SELECT count(*) AS groups, sum(total) AS total FROM sums",
    "pairs": "SELECT a.id AS a, b.id AS b FROM t a JOIN t b ON a.v = b.v AND a.id < b.id",
}
MARK = -1
"""The row that counts calls: written by each of them, atomically with what it does."""


def operation(seed: int, number: int) -> tuple[list[dict], list[bool]]:
    """What call `number` writes: rows, and which of them are deletes."""
    rng = random.Random(f"{seed}/{number}")
    rows = [{"id": MARK, "g": None, "v": number, "s": None}]
    for _ in range(rng.randint(1, 5)):
        rows.append(
            {"id": rng.randrange(60), "g": rng.randrange(4), "v": rng.randrange(100), "s": "x" * rng.randrange(30)}
        )
    return rows, [False, *(rng.random() < 0.3 for _ in rows[1:])]


def model(seed: int, number: int) -> dict[int, tuple]:
    rows: dict[int, tuple] = {}
    for n in range(1, number + 1):
        for row, deleted in zip(*operation(seed, n), strict=True):
            if deleted:
                rows.pop(row["id"], None)
            else:
                rows[row["id"]] = (row["g"], row["v"], row["s"])
    return rows


def check(db: Database, seed: int, acknowledged: int) -> int:
    """The number of calls that the database has; raises if anything does not fit."""
    if "t" not in db.catalog.tables:
        assert acknowledged == 0, f"the table is gone, {acknowledged} calls were acknowledged"
        return 0
    mark = db.get("t", MARK)
    found = 0 if mark is None else mark["v"]
    assert acknowledged <= found <= acknowledged + 1, f"{acknowledged} calls acknowledged, {found} found"
    expected = model(seed, found)
    rows = {r["id"]: (r["g"], r["v"], r["s"]) for r in db.scan("t").to_pylist()}
    assert rows == expected, f"after {found} calls: {rows} != {expected}"
    report = db.verify()
    assert report.ok, str(report)
    return found


def live(path: str, seed: int, acknowledged: int, out: int) -> None:
    """Check, then write for ever; every acknowledged call is told at once."""
    rng = random.Random(f"{seed}/{os.getpid()}")
    db = belvedere.open(path, **OPTIONS)
    number = check(db, seed, acknowledged)
    os.write(out, f"checked {number}\n".encode())
    db.execute("CREATE TABLE IF NOT EXISTS t (id BIGINT PRIMARY KEY, g BIGINT, v BIGINT, s STRING)")
    while True:
        missing = [v for v in VIEWS if v not in db.catalog.views and (v != "top" or "sums" in db.catalog.views)]
        choice = rng.random()
        if missing and choice < 0.05:
            name = rng.choice(missing)
            db.execute(f"CREATE MATERIALIZED VIEW IF NOT EXISTS {name} AS {VIEWS[name]}", wait=rng.random() < 0.5)
        elif choice < 0.06 and "big" in db.catalog.views:
            db.execute("DROP MATERIALIZED VIEW big")
        elif choice < 0.08:
            db.checkpoint()
        elif choice < 0.09:
            db.close()
            db = belvedere.open(path, **OPTIONS)
        number += 1
        rows, deletes = operation(seed, number)
        db.write("t", [{**r, "g": r["g"]} for r in rows], deletes=deletes)
        os.write(out, f"acknowledged {number}\n".encode())


def warm() -> None:
    """Load every kernel before the first fork."""
    with belvedere.open(threads=1) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT, v BIGINT, s STRING)")
        for name, query in VIEWS.items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        for number in range(1, 30):
            rows, deletes = operation(1, number)
            db.wait(db.write("t", rows, deletes=deletes))
        check(db, 1, 29)


def main() -> None:
    warm()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        out = os.open(command["out"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        pid = os.fork()
        if pid == 0:
            try:
                live(command["path"], command["seed"], command["acknowledged"], out)
            except BaseException:
                os.write(out, f"failed {json.dumps(traceback.format_exc())}\n".encode())
            finally:
                os._exit(1)
        os.close(out)
        print(json.dumps({"pid": pid}), flush=True)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"status": status}), flush=True)


if __name__ == "__main__":
    main()
