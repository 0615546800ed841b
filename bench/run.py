"""Run benchmarks: `python -m bench.run [names…] [--quick] [--out FILE]`; JSON results, and a plot of them."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from bench import plot, queries, scenarios
from bench.harness import machine

TARGETS = {
    "q1": 2.0,
    "q2_10": 2.0,
    "q2_50": 2.0,
    "q3": 5.0,
    "q4": 5.0,
}


def comparisons(operations: int, repeats: int) -> list[dict[str, Any]]:
    """Every query, both distributions; q3 with both numbers of groups."""
    out = []
    for query in queries.VIEWS:
        for groups in (1000, 100_000) if query == "q3" else (100_000,):
            for zipf in (False, True):
                result = queries.compare(query, operations, groups, zipf, repeats)
                result["target"] = TARGETS[query]
                out.append(result)
                rates = (
                    f"{result['belvedere_per_cpu_s'] / 1e6:7.3f} M/CPU-s, naive {result['naive_per_cpu_s'] / 1e6:.3f}"
                )
                verdict = f"ratio {result['ratio']:5.2f} (target {result['target']}), equal: {result['equal']}"
                print(f"{query:6s} groups={groups:<7d} {result['distribution']:8s} {rates}, {verdict}", flush=True)
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"queries {' '.join(scenarios.ALL)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the operations, one repetition")
    parser.add_argument("--operations", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("bench/results/latest.json"))
    given = parser.parse_args()
    if given.quick:
        given.operations, given.repeats = given.operations // 10, 1
    names = given.names or ["queries", *scenarios.ALL]
    results: dict[str, Any] = {"machine": machine(), "operations": given.operations}
    if given.out.exists():
        results = {**json.loads(given.out.read_text()), **results}
    for name in names:
        begin = time.perf_counter()
        if name == "queries":
            results[name] = comparisons(given.operations, given.repeats)
        elif name in scenarios.ALL:
            results[name] = scenarios.ALL[name]()
            print(name, json.dumps(results[name], indent=2), flush=True)
        else:
            print(f"no benchmark {name!r}; there is queries, {', '.join(scenarios.ALL)}", file=sys.stderr)
            return 2
        print(f"({name} took {time.perf_counter() - begin:.0f} s)", flush=True)
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(results, indent=2) + "\n")
    plot.draw(results, given.out.with_suffix(".svg"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
