"""`python -m tests.teeth [PATTERN ...] [--list] [--jobs N] [--json FILE] [--timeout S] [--trust] [--record]`"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from pathlib import Path

from tests.teeth.breaks import Break, Rotten, all_breaks, described, missing_checks
from tests.teeth.results import record
from tests.teeth.runner import Report, Runner, copies


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    try:
        breaks = _chosen(all_breaks(), options.patterns)
        for b in breaks:
            b.mutated()
        if missing := list(missing_checks(breaks)):
            raise Rotten("\n".join(missing))
    except Rotten as error:
        print(f"rotten: {error}", file=sys.stderr)
        return 2
    if options.list:
        for b in breaks:
            print(f"{b.name}\n    {b.claim}; {b.file}; {', '.join(described(check) for check in b.checks)}")
        return 0
    with copies(options.jobs) as free:
        runner = Runner(breaks, options.timeout, options.trust)
        if failing := runner.failing_without(free[0]):
            for answer in failing:
                print(
                    f"{described(answer.check)} fails without a break ({answer.outcome}): {answer.how}", file=sys.stderr
                )
            return 2
        reports = []
        for report in runner.run(free):
            reports.append(report)
            print(_line(report), flush=True)
            if options.record:
                record([report], all_breaks())
    if options.json:
        options.json.write_text(json.dumps([r.as_json() for r in reports], indent=1) + "\n")
    print(_summary(reports))
    return 0 if all(report.good for report in reports) else 1


def _chosen(breaks: list[Break], patterns: list[str]) -> list[Break]:
    chosen = [b for b in breaks if not patterns or any(fnmatch.fnmatch(b.name, f"*{p}*") for p in patterns)]
    if not chosen:
        raise Rotten(f"no break is named like {', '.join(patterns)}; --list shows their names")
    return chosen


def _line(report: Report) -> str:
    mark = "ok  " if report.good else "MISS"
    lines = [f"{mark} {report.broken.name}: {', '.join(report.suites) or 'nothing'}"]
    if report.broken.equivalent:
        lines.append(f"       equivalent: {report.broken.equivalent}")
    for a in report.answers:
        must = "" if a.check in report.broken.noticed_by else " (may)"
        lines.append(f"       {a.outcome:7}{must} {a.seconds:6.1f} s  {described(a.check)}  {a.how}")
    return "\n".join(lines)


def _summary(reports: list[Report]) -> str:
    """The table: each break, and who noticed."""
    width = max(len(report.broken.name) for report in reports)
    suites = ("simulator", "unit tests", "other")
    lines = ["", f"{'break':{width}}  " + "  ".join(suites)]
    for report in reports:
        marks = "  ".join(f"{'x' if name in report.suites else '':{len(name)}}" for name in suites)
        verdict = "" if report.good else "  UNNOTICED by " + ", ".join(described(a.check) for a in report.unnoticed)
        lines.append(f"{report.broken.name:{width}}  {marks}{'  equivalent' if report.broken.equivalent else verdict}")
    counts = ", ".join(f"{sum(name in report.suites for report in reports)} by {name}" for name in suites)
    nobody = sum(not report.suites for report in reports)
    bad = sum(not report.good for report in reports)
    lines.append(f"{len(reports)} breaks: noticed {counts}; {nobody} by nothing; {bad} not as they must be")
    return "\n".join(lines)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.teeth", description=__doc__)
    parser.add_argument("patterns", nargs="*", help="only breaks whose name contains one of these (* and ? allowed)")
    parser.add_argument("--list", action="store_true", help="names, claims and checks; runs nothing")
    parser.add_argument("--jobs", type=int, default=1, help="how many breaks at a time (default: 1)")
    parser.add_argument("--json", type=Path, help="write what came out to this file")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds per check (default: 600)")
    parser.add_argument("--trust", action="store_true", help="do not run the checks without a break first")
    parser.add_argument("--record", action="store_true", help="write who noticed into tests/teeth/RESULTS.md")
    found = parser.parse_args(arguments)
    if found.record and found.trust:
        parser.error("--record needs checks that were seen to pass without a break; leave --trust away")
    return found


if __name__ == "__main__":
    sys.exit(main())
