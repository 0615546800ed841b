"""The paper's queries on this code and on an earlier commit, in one run: `python -m bench.against COMMIT [names…]`.

Each measurement is a process of its own, the two versions take turns, and the least CPU of all rounds counts: on a
machine that others use as well, everything that disturbs makes a run dearer and nothing makes it cheaper.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

from bench import queries
from bench.harness import Cost, machine, measure, scratch
from bench.workload import stream_r, stream_s

HERE = Path(__file__).resolve().parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    parser.add_argument(
        "names", nargs="*", default=list(queries.VIEWS), help=f"of {' '.join(queries.VIEWS)} (default: all)"
    )
    parser.add_argument("--operations", type=int, default=2_000_000)
    parser.add_argument(
        "--rounds", type=int, default=4, help="processes of each version; each feeds the stream three times"
    )
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(min(cost.cpu for cost in feed(given.names[0], given.operations)))
        return 0
    print(machine())
    with tempfile.TemporaryDirectory(prefix="belvedere-bench-") as name:
        versions = {"before": unpack(given.commit, Path(name)), "now": HERE / "viewserver"}
        for query in given.names:
            least = dict.fromkeys(versions, float("inf"))
            for _ in range(given.rounds):
                for version, sources in versions.items():
                    least[version] = min(least[version], child(sources, given.commit, query, given.operations))
            rates = {version: given.operations / cpu / 1e6 for version, cpu in least.items()}
            print(
                f"{query:6s} before {rates['before']:.3f} M/CPU-s, now {rates['now']:.3f}: "
                f"{rates['now'] / rates['before']:.2f} of its speed",
                flush=True,
            )
    return 0


def unpack(commit: str, directory: Path) -> Path:
    """The sources of that commit; where they are."""
    archive = subprocess.run(["git", "archive", commit, "viewserver"], cwd=HERE, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(directory, filter="data")
    return directory / "viewserver"


def child(sources: Path, commit: str, query: str, operations: int) -> float:
    """CPU seconds of one query in a process that has these sources."""
    line = [sys.executable, "-m", "bench.against", "--child", "--operations", str(operations), commit, query]
    paths = os.pathsep.join((str(sources), str(HERE)))
    done = subprocess.run(line, env={**os.environ, "PYTHONPATH": paths}, check=True, stdout=subprocess.PIPE, cwd="/")
    return float(done.stdout.split()[-1])


def feed(query: str, operations: int) -> list[Cost]:
    """What it costs to take the stream in with this view, opening left out; the first loads code: not counted."""
    r, s = stream_r(operations, 100_000, zipf=False), stream_s() if query == "q4" else None
    costs = []
    with scratch() as directory:
        for number in range(4):
            db = queries.create(directory / str(number), [query])
            costs.append(measure(lambda db=db: queries.feed(db, r, s)))  # type: ignore[misc]
            db.close()
    return costs[1:]


if __name__ == "__main__":
    sys.exit(main())
