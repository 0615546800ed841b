"""Plants breaks, one at a time, in a copy of the checkout, and asks those who must notice.

Kernels are shared with the checkout, since they are addressed by what they were compiled from; only a break of their
own sources gets a cache of its own. A lock keeps two runs out of one copy. All checks run on the copy without a break
first: tests that fail anyway notice nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.teeth.breaks import ROOT, Break, Check, described, suite

LEFT_OUT = (".git", "__pycache__", ".*_cache", ".hypothesis", "*.egg-info", "site", "dist")
"""Not copied."""

LEFT_OVER = 2_000
"""Characters of a check's output that are kept."""


@dataclass(frozen=True)
class Answer:
    """What one check said. `outcome`: noticed, passed, hung, skipped (what it needs is missing here), or error (it
    could not be asked)."""

    check: Check
    outcome: str
    seconds: float
    how: str = ""
    output: str = ""


@dataclass
class Report:
    broken: Break
    answers: list[Answer] = field(default_factory=list)

    def noticed(self, check: Check) -> bool:
        return any(
            a.outcome == "noticed" or (a.outcome == "hung" and self.broken.hangs)
            for a in self.answers
            if a.check == check
        )

    @property
    def suites(self) -> list[str]:
        noticed = {suite(check) for check in self.broken.checks if self.noticed(check)}
        return [name for name in ("simulator", "unit tests", "other") if name in noticed]

    @property
    def unnoticed(self) -> list[Answer]:
        """Those that had to notice and did not."""
        return [a for a in self.answers if a.check in self.broken.noticed_by and not self.noticed(a.check)]

    @property
    def good(self) -> bool:
        return bool(self.broken.equivalent) or not self.unnoticed

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.broken.name,
            "claim": self.broken.claim,
            "file": self.broken.file,
            "noticed by": self.suites or ["nothing"],
            "good": self.good,
            "equivalent": self.broken.equivalent,
            "checks": [
                {
                    "check": described(a.check),
                    "must notice": a.check in self.broken.noticed_by,
                    "outcome": a.outcome,
                    "seconds": round(a.seconds, 1),
                    "how": a.how,
                    "output": a.output,
                }
                for a in self.answers
            ],
        }


class Copy:
    """A directory of one's own with the checkout in it."""

    def __init__(self, directory: Path, root: Path = ROOT) -> None:
        self.root = root
        self.tree = directory / "tree"
        self._fresh = directory / "fresh-kernels"
        self._bytecode = directory / "bytecode"

    def restore(self) -> None:
        """All files as they are in the checkout."""
        shutil.rmtree(self.tree, ignore_errors=True)
        shutil.copytree(self.root, self.tree, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))

    def plant(self, broken: Break) -> None:
        self.restore()
        (self.tree / broken.file).write_text(broken.mutated(self.tree))
        shutil.rmtree(self._bytecode, ignore_errors=True)  # known by size and second only
        shutil.rmtree(self._fresh, ignore_errors=True)

    def ask(self, check: Check, timeout: float, fresh_kernels: bool = False) -> Answer:
        begin = time.monotonic()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(self.tree / part) for part in ("viewserver", "operator", ".")),
            "PYTHONPYCACHEPREFIX": str(self._bytecode),
            **({"NUMBA_CACHE_DIR": str(self._fresh)} if fresh_kernels else {}),
            "COLUMNS": "250",  # room for the reason behind the name of a test
        }
        with tempfile.TemporaryFile("w+", errors="replace") as out:
            process = subprocess.Popen(
                _command(check),
                cwd=self.tree,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                with contextlib.suppress(ProcessLookupError):  # what the tests started goes with them
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            out.seek(0)
            text = out.read()
        outcome = {None: "hung", 0: "passed", 1: "noticed"}.get(code, "error")
        if outcome == "passed" and re.search(r"(?m)^\d+ skipped in ", text):
            outcome = "skipped"
        return Answer(check, outcome, time.monotonic() - begin, _how(text), text[-LEFT_OVER:])


def _command(check: Check) -> list[str]:
    if isinstance(check, range):
        seeds = ["--first", str(check.start), "--seeds", str(len(check)), "--failures", "1", "--jobs", "1"]
        return [sys.executable, "-m", "tests.simulator", *seeds]
    if check.startswith("tests/"):
        return [sys.executable, "-m", "pytest", check, "-x", "-q", "-p", "no:cacheprovider", "-m", ""]
    program, *arguments = shlex.split(check)
    return [str(Path(sys.executable).with_name(program)), *arguments]


def _how(text: str) -> str:
    """The line that says what was noticed."""
    lines = text.splitlines()
    for begins in (r"seed \d+: ", "FAILED ", "ERROR ", "E  "):
        for line in lines:
            if re.match(begins, line) and "nothing wrong" not in line:
                return line.strip()[:300]
    return lines[-1].strip()[:300] if lines else ""


@contextlib.contextmanager
def copies(count: int, root: Path = ROOT) -> Iterator[list[Copy]]:
    """Directories that no other run uses now."""
    name = hashlib.sha256(str(root).encode()).hexdigest()[:12]
    base = Path(tempfile.gettempdir()) / f"belvedere-teeth-{os.getuid()}-{name}"
    with contextlib.ExitStack() as stack:
        free: list[Copy] = []
        number = 0
        while len(free) < count:
            directory = base / str(number)
            directory.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(open(directory / "lock", "w"))
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                free.append(Copy(directory, root))
            number += 1
        yield free


class Runner:
    """All breaks that were chosen, on one copy or several."""

    def __init__(self, breaks: list[Break], timeout: float, trust: bool = False) -> None:
        self._breaks = breaks
        self._timeout = timeout
        self._trust = trust

    def failing_without(self, copy: Copy) -> list[Answer]:
        """What fails on the unbroken copy: it cannot be asked."""
        if self._trust:
            return []
        copy.restore()
        checks = dict.fromkeys(check for b in self._breaks for check in b.checks)
        return [a for a in (copy.ask(check, self._timeout) for check in checks) if a.outcome != "passed"]

    def run(self, free: list[Copy]) -> Iterator[Report]:
        """Reports in the order in which they are done."""
        waiting: queue.SimpleQueue[Break] = queue.SimpleQueue()
        for b in self._breaks:
            waiting.put(b)
        done: queue.SimpleQueue[Report | BaseException] = queue.SimpleQueue()

        def work(copy: Copy) -> None:
            with contextlib.suppress(queue.Empty):
                while True:
                    done.put(self._try(waiting.get_nowait(), copy))

        def guarded(copy: Copy) -> None:
            try:
                work(copy)
            except BaseException as error:
                done.put(error)

        for copy in free:
            threading.Thread(target=guarded, args=(copy,), daemon=True).start()
        for _ in self._breaks:
            report = done.get()
            if isinstance(report, BaseException):
                raise report
            yield report

    def _try(self, broken: Break, copy: Copy) -> Report:
        fresh = broken.needs_fresh_kernels(copy.root)
        copy.plant(broken)
        return Report(broken, [copy.ask(check, self._timeout, fresh) for check in broken.checks])
