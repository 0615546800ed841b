"""Internal consistency: a million one-dollar transfers between ten accounts; nobody ever sees money appear or
vanish."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import numpy as np
import pyarrow as pa

import belvedere

TRANSFERS = 1_000_000
WRITERS = 2
BALANCES = """CREATE MATERIALIZED VIEW balances AS
    SELECT account, sum(amount) AS balance FROM (
        SELECT target AS account, 1 AS amount FROM transfers UNION ALL SELECT source, -1 FROM transfers
    ) GROUP BY account"""
TOTAL = "CREATE MATERIALIZED VIEW total AS SELECT sum(balance) AS total, count(*) AS accounts FROM balances"


def watch(db, stop: Callable[[], bool]) -> int:
    """Look at both views at one epoch until told to stop; returns how many epochs were seen. Raises if money is
    amiss."""
    epochs: set[int] = set()
    last = 0
    done = False
    while not done:
        done = stop()
        with db.snapshot() as snapshot:
            assert snapshot.epoch >= last, f"epoch {snapshot.epoch} after {last}"
            last = snapshot.epoch
            balances = snapshot.scan("balances")["balance"].to_pylist()
            total = snapshot.scan("total").to_pylist()
            assert sum(balances) == 0, f"epoch {last}: balances {balances}"
            assert total[0]["total"] in (0, None), f"epoch {last}: total {total}"
            assert total[0]["accounts"] == len(balances), f"epoch {last}: {total}, {balances}"
        row = db.get("total", ())
        assert row is not None and row["total"] in (0, None), f"total {row}"
        epochs.add(last)
    return len(epochs)


def write(db, writer: int) -> None:
    rng = np.random.default_rng(writer)
    first, end = writer * TRANSFERS // WRITERS, (writer + 1) * TRANSFERS // WRITERS
    while first < end:
        count = min(end - first, int(rng.choice([1, 100, 5_000, 20_000])))
        source = rng.integers(0, 10, count)
        target = (source + rng.integers(1, 10, count)) % 10
        db.put("transfers", pa.table({"id": np.arange(first, first + count), "source": source, "target": target}))
        first += count


READER = """
import sys
import belvedere
from tests.embedded.test_transfers import watch
db = belvedere.open(sys.argv[1], read_only=True)
lines = iter(sys.stdin.readline, "")
import threading
stop = threading.Event()
threading.Thread(target=lambda: (next(lines, None), stop.set()), daemon=True).start()
print("ready", flush=True)
print(watch(db, stop.is_set), flush=True)
"""


def test_the_total_is_zero_at_every_epoch_ever_seen(tmp_path):
    db = belvedere.open(tmp_path / "bank", snapshot_bytes=4 << 20)
    db.execute("CREATE TABLE transfers (id BIGINT PRIMARY KEY, source BIGINT, target BIGINT)")
    db.execute(BALANCES)
    db.execute(TOTAL)
    process = subprocess.Popen(
        [sys.executable, "-c", READER, str(tmp_path / "bank")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(["", *(p for p in sys.path if p)])},
    )
    assert process.stdout.readline() == "ready\n"
    stop = threading.Event()
    seen: list[int] = []
    failed: list[BaseException] = []

    def guarded(action: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            try:
                action()
            except BaseException as error:
                failed.append(error)

        return run

    readers = [threading.Thread(target=guarded(lambda: seen.append(watch(db, stop.is_set)))) for _ in range(2)]
    writers = [threading.Thread(target=guarded(lambda w=w: write(db, w))) for w in range(WRITERS)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    db.wait(db.put("transfers", {"id": -1, "source": 1, "target": 2}))
    stop.set()
    for thread in readers:
        thread.join()
    out, _ = process.communicate("stop\n", timeout=30)
    assert not failed, failed
    assert process.returncode == 0 and int(out) > 3, out
    assert len(seen) == 2 and min(seen) > 3, seen
    assert db.scan("transfers").num_rows == TRANSFERS + 1
    assert db.verify().ok
    db.close()
    with belvedere.open(tmp_path / "bank") as again:
        assert again.scan("total").to_pylist() == [{"total": 0, "accounts": 10}]
        assert again.verify().ok
