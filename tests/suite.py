"""What `make test` runs: all tests in two parts, and those that failed once more.

Kubernetes and the images are made in the background, at the lowest priority, while the first part runs on two
processes. Tests that need a cluster or Spark come last, in one process: they share one, which works beside them.

Many tests watch real processes under load, on machines that others use. A test that fails is run once more by itself
when the rest is done. If it passes then, it is named at the end, and does not fail the run: somebody has to look at
it, but a red run means that something is broken. More than `MOST` failures are no accident, and are not tried again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MOST = 3

# Exit codes of pytest.
FINE, FAILED, NOTHING_TO_RUN = 0, 1, 5


@dataclass(frozen=True)
class Part:
    """A run of pytest over the tests that an expression of marks selects."""

    marks: str
    options: tuple[str, ...] = ()


def parts(selected: str) -> tuple[Part, Part]:
    """The two parts of everything that `selected`, an expression of marks, selects."""
    return (
        Part(f"({selected}) and not kubernetes and not spark", ("-n", "2", "--dist", "worksteal")),
        Part(f"({selected}) and (kubernetes or spark)"),
    )


def main(selected: str, arguments: Sequence[str]) -> int:
    cache = Path(os.environ.get("BELVEDERE_CACHE", Path.home() / ".cache/belvedere"))
    first, second = parts(selected)
    with (cache / "kube.txt").open("w") as said:
        preparing = subprocess.Popen([sys.executable, "-m", "tests.kube", "prepare"], stdout=said, stderr=said)
    try:
        codes = [run(first, ["--cache-clear", *arguments])]
        if preparing.wait() != 0:
            print((cache / "kube.txt").read_text())
        codes.append(run(second, arguments))
    finally:
        preparing.terminate()
    return verdict(codes, Path.cwd(), arguments, selected)


def run(part: Part, arguments: Sequence[str]) -> int:
    command = [sys.executable, "-m", "pytest", "-q", *part.options, "-m", part.marks, *arguments]
    return subprocess.run(command, check=False).returncode


def verdict(codes: Sequence[int], top: Path, arguments: Sequence[str], selected: str) -> int:
    """The exit code of all; what failed is run once more if it is little, and if nothing else went wrong."""
    if all(code == NOTHING_TO_RUN for code in codes):
        return NOTHING_TO_RUN
    unusual = [code for code in codes if code not in (FINE, FAILED, NOTHING_TO_RUN)]
    if unusual:
        return unusual[0]
    if FAILED not in codes:
        return FINE
    failed = failed_tests(top)
    if not 0 < len(failed) <= MOST:
        return FAILED
    print(f"\nonce more, alone: {', '.join(failed)}\n", flush=True)
    if run(Part(selected, ("--last-failed", "--last-failed-no-failures", "none")), arguments) != FINE:
        return FAILED
    print("\nfailed beside others and passed alone; look at them:")
    for name in failed:
        print(f"  {name}")
    return FINE


def failed_tests(top: Path) -> list[str]:
    """What pytest's cache has as failed since it was cleared."""
    known = top / ".pytest_cache/v/cache/lastfailed"
    return sorted(json.loads(known.read_text())) if known.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
