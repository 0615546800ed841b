"""A server as a child process that does not outlive those who need it.

`stop` runs at exit. Should whoever needs the server be killed, a watchdog (a shell that waits for the end of a pipe)
ends it. (PR_SET_PDEATHSIG would do it on Linux only, and already when the *thread* that started the child ends.)

    Leash.OURS      the pipe is held by this process: the server ends with it
    a path          a named pipe that several processes hold (`hold`): the server ends when the last of them has gone
    Leash.NONE      the server stays until it is stopped by its pid
"""

from __future__ import annotations

import atexit
import contextlib
import enum
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from belvedere.retry import Backoff, Deadline, poll

_WATCHDOG = 'read -r _; kill -9 "$1" 2>/dev/null'
_TERM_S = 5.0
_LOG_TAIL = 20_000


class Leash(enum.Enum):
    """Whether a child ends with this process (see above)."""

    OURS = "ours"
    NONE = "none"


class Child:
    """A process that was started just now. Its output goes to the end of `log`."""

    def __init__(self, command: Sequence[str], directory: Path, log: Path, leash: Leash | Path = Leash.OURS) -> None:
        self._log_file = log
        with open(log, "ab") as output:
            self._log_begin = output.tell()
            # A session of its own: Ctrl-C at the terminal is for the parent, which stops it when the others have gone.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd=directory
            )
        self._watchdog = None if leash is Leash.NONE else _watchdog(self.pid, leash)
        if leash is Leash.OURS:
            atexit.register(self.stop)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def watchdog_pid(self) -> int | None:
        return None if self._watchdog is None else self._watchdog.pid

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def said(self, most: int = _LOG_TAIL) -> str:
        """The end of what it has written since it was started."""
        return tail(self._log_file, self._log_begin, most)

    def disown(self) -> None:
        """It goes on without this process, which will not wait for its end."""
        for process in filter(None, (self._process, self._watchdog)):
            process.returncode = 0  # else Popen warns of a child that nobody waited for

    def stop(self, *, kill: bool = False) -> None:
        """`kill`: without warning, as a crash would. It is gone and its pid is free when this returns."""
        atexit.unregister(self.stop)
        if self._watchdog is not None:  # first: it must not hit a process that gets this pid later
            end(self._watchdog, kill=True)
        end(self._process, kill=kill)


def _watchdog(pid: int, leash: Leash | Path) -> subprocess.Popen[bytes]:
    # A named pipe is opened here and not by the shell, which would wait for ever if all who hold it had gone by then.
    pipe = None if isinstance(leash, Leash) else os.open(leash, os.O_RDONLY | os.O_NONBLOCK)
    if pipe is not None:
        os.set_blocking(pipe, True)
    try:
        return subprocess.Popen(
            ["/bin/sh", "-c", _WATCHDOG, "watchdog", str(pid)],
            stdin=subprocess.PIPE if pipe is None else pipe,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    finally:
        if pipe is not None:
            os.close(pipe)


def hold(pipe: Path) -> int:
    """Be one of those who need what is on the leash of a named pipe; closing the descriptor ends it. Both directions,
    so that the call does not wait for the other end."""
    if not pipe.exists():
        os.mkfifo(pipe)
    return os.open(pipe, os.O_RDWR)


def end(process: subprocess.Popen[bytes], *, kill: bool, patience: float = _TERM_S) -> None:
    """It is gone and its pid is free when this returns."""
    if process.stdin is not None:
        process.stdin.close()
    if process.poll() is None and not kill:
        process.send_signal(signal.SIGCONT)  # a stopped process would not hear the next one
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=patience)
    if process.poll() is None:
        process.kill()
    process.wait()


def end_by_pid(pid: int, mark: str, *, kill: bool = False, patience: float = 20.0) -> None:
    """End a process that another one started, if `mark` is in its command line: a pid may belong to somebody else by
    now."""
    for signals, seconds in (((signal.SIGCONT, signal.SIGTERM), 0.0 if kill else patience), ((signal.SIGKILL,), 10.0)):
        for number in signals if seconds else ():
            if not is_running(pid, mark):
                return
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if poll(lambda: not is_running(pid, mark), Deadline(seconds), Backoff(0.02, 0.1)):
            return


def is_running(pid: int, mark: str) -> bool:
    """Whether the pid is that of a process with `mark` in its command line; what has ended and was not reaped by its
    parent does not count."""
    process = Path(f"/proc/{pid}")
    if Path("/proc/self").exists():
        command = b""

        def is_known() -> bool:
            nonlocal command
            try:
                command = (process / "cmdline").read_bytes()
                state = (process / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                return True
            # empty for what has ended and was not reaped, and for a moment while a program begins
            return bool(command) or state in "ZX"

        poll(is_known, Deadline(1.0), Backoff(0.001, 0.01))
        return mark.encode() in command
    listed = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True)
    return mark in listed.stdout


def free_port() -> int:
    """Of 127.0.0.1. Somebody else may take it before it is used."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def tail(file: Path, begin: int = 0, most: int = _LOG_TAIL) -> str:
    with open(file, "rb") as log:
        log.seek(begin)
        return log.read()[-most:].decode(errors="replace").strip()
