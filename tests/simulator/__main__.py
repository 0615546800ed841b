"""`python -m tests.simulator --seeds N [--first M] [--jobs J] [--bug NAME] [--trace]`"""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulator import bugs, runner
from tests.simulator.trace import Trace

SHOWN = 400
"""Lines of a trace that are shown when a history went wrong."""


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    if options.trace:
        return _replay(options)
    begin, done, cpu, epochs, wrong = time.monotonic(), 0, 0.0, 0, 0

    def progress(outcome: runner.Outcome) -> None:
        nonlocal done, cpu, epochs
        done, cpu, epochs = done + 1, cpu + outcome.cpu, epochs + outcome.epochs
        if sys.stderr.isatty() or done % 1_000 == 0 or done == options.seeds:
            text = f"{done}/{options.seeds} histories, {epochs} epochs, {cpu / done:.3f} CPU s each, {wrong} wrong"
            print(text, file=sys.stderr, end="\r" if sys.stderr.isatty() and done < options.seeds else "\n")

    for outcome in runner.run_many(options.first, options.seeds, options.bug, options.jobs, progress):
        wrong += 1
        _say(f"seed {outcome.seed}: {outcome.wrong}\n  replay: {runner.replay_command(outcome.seed, options.bug)}")
        if wrong == 1:
            _trace(outcome.seed, options.bug)
        if wrong >= options.failures:
            break
    _say(f"{done} histories in {time.monotonic() - begin:.0f} s, {wrong} wrong")
    return 1 if wrong else 0


def _replay(options: argparse.Namespace) -> int:
    """Every history with its trace: what matters of it where it went wrong, all of it on request."""
    seeds = range(options.first, options.first + options.seeds)
    return 1 if sum([_trace(seed, options.bug, options.all) for seed in seeds]) else 0


def _trace(seed: int, bug: str | None, whole: bool = False) -> bool:
    """Whether the history went wrong."""
    trace = Trace(enabled=True)
    outcome = runner.run(seed, bug, trace)
    if outcome.wrong or whole:
        if not whole and len(trace.lines) > SHOWN:
            _say(f"{len(trace.lines)} lines, about {SHOWN} of them shown (--all shows them all)")
        _say("\n".join(trace.tail(len(trace.lines)) if whole else trace.excerpt(SHOWN)))
    _say(f"seed {seed}: {outcome.wrong or f'{outcome.epochs} epochs, nothing wrong'}")
    return bool(outcome.wrong)


def _say(text: str) -> None:
    print(text, flush=True)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.simulator", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many histories")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=runner.cores(), help="processes (default: one per core)")
    parser.add_argument("--failures", type=int, default=5, help="stop after so many wrong histories")
    parser.add_argument("--bug", choices=sorted(bugs.BUGS), help="switch on a known bug")
    parser.add_argument("--trace", action="store_true", help="in this process, with a trace of what happened")
    parser.add_argument(
        "--all", action="store_true", help="the whole trace, also of histories in which nothing is wrong"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
