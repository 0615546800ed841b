"""Child processes end with those who need them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from belvedere.local.child import Child, Leash, end_by_pid, hold, is_running, tail

_PARENT = """
import sys, time
from pathlib import Path
from belvedere.local.child import Child, Leash, hold
place = Path(sys.argv[1])
(place / "log").touch()
leash = {"ours": Leash.OURS, "none": Leash.NONE}.get(sys.argv[2], place / "leash")
held = hold(place / "leash") if leash == place / "leash" else None
child = Child(["tail", "-f", str(place / "log")], place, place / "log.2", leash)
print(child.pid, flush=True)
sys.stdin.read()
"""


def parent(place: Path, leash: str) -> tuple[subprocess.Popen[str], int]:
    """A process that has a child, and the child's pid."""
    command = [sys.executable, "-c", _PARENT, str(place), leash]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def killed(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def eventually_gone(pid: int, mark: str) -> bool:
    end = time.monotonic() + 30
    while is_running(pid, mark) and time.monotonic() < end:
        time.sleep(0.01)
    return not is_running(pid, mark)


def test_a_child_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    process, pid = parent(tmp_path, "ours")
    assert is_running(pid, str(tmp_path))
    killed(process)
    assert eventually_gone(pid, str(tmp_path))


def test_a_shared_child_ends_with_the_last_who_holds_it(tmp_path: Path) -> None:
    first, pid = parent(tmp_path, "shared")
    held = hold(tmp_path / "leash")
    killed(first)
    second, other = parent(tmp_path, "shared")
    assert is_running(pid, str(tmp_path)) and is_running(other, str(tmp_path))
    os.close(held)
    assert is_running(pid, str(tmp_path))  # the second holds it
    killed(second)
    assert eventually_gone(pid, str(tmp_path)) and eventually_gone(other, str(tmp_path))


def test_a_child_without_leash_stays_and_is_ended_by_its_pid(tmp_path: Path) -> None:
    process, pid = parent(tmp_path, "none")
    killed(process)
    assert is_running(pid, str(tmp_path))
    end_by_pid(pid, "of somebody else")
    assert is_running(pid, str(tmp_path))
    end_by_pid(pid, str(tmp_path))
    assert not is_running(pid, str(tmp_path))


def test_a_stopped_child_is_gone_and_what_it_said_is_known(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("of an earlier one\n")
    child = Child(["/bin/sh", "-c", "echo hello; exec tail -f /dev/null"], tmp_path, tmp_path / "log", Leash.OURS)
    end = time.monotonic() + 30
    while child.said() != "hello" and time.monotonic() < end:
        time.sleep(0.01)
    assert child.said() == "hello" and child.runs and tail(tmp_path / "log").startswith("of an earlier")
    child.stop(kill=True)
    assert not child.runs and not is_running(child.pid, "tail -f")
    child.stop()
