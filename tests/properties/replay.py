"""Run generated cases by seed: `python -m tests.properties.replay SEED [SEED…]` or `--range START STOP`.

Prints what fails, made small, as a `.test` file that can be kept in `tests/views`.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.oracle.duck import Oracle
from tests.properties.case import NotComputable, attempt, generate, to_test_file
from tests.properties.shrink import shrink


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="*", type=int)
    parser.add_argument("--range", nargs=2, type=int, metavar=("START", "STOP"))
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--show", action="store_true", help="print the cases without running them")
    options = parser.parse_args()
    seeds = options.seeds or range(*options.range)
    oracle, failed, start = Oracle(), 0, time.perf_counter()
    for seed in seeds:
        case = generate(seed)
        if options.show:
            print(to_test_file(case, f"seed {seed}"))
            continue
        try:
            error = attempt(case, oracle)
        except NotComputable as refused:
            print(f"seed {seed}: DuckDB: {refused}", flush=True)
            continue
        if error is not None:
            failed += 1
            if not options.no_shrink:
                case = shrink(case, oracle)
                error = attempt(case, oracle) or error
            print(f"=== seed {seed}: {type(error).__name__}: {error}")
            if not isinstance(error, AssertionError):
                print("".join(traceback.format_exception(error)[-8:]))
            print(to_test_file(case, f"seed {seed}"), flush=True)
    count = len(seeds)
    print(f"{count} histories, {failed} failures, {(time.perf_counter() - start) / max(count, 1):.3f} s each")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
