"""Ctrl-C ends a command with a line and an exit code; nothing that was acknowledged is lost, and the files are free."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

import belvedere
from tests.interrupts.storm import PATIENCE
from tests.interrupts.test_signals import ENVIRONMENT

CHUNK = 50
KEPT = "interrupted; what was acknowledged before is kept\n"
# The process says when its call begins, so that the signal comes then and not while Python starts.
SCRIPT = """
import faulthandler, os, sys
faulthandler.dump_traceback_later(60, exit=True)
import belvedere.embedded.database
from belvedere.cli.main import main
method, after = sys.argv.pop(1), int(sys.argv.pop(1))
original, calls = getattr(belvedere.embedded.database.Database, method), 0
def watched(*arguments, **options):
    global calls
    calls += 1
    if calls > after:
        os.write(2, b"!")
    return original(*arguments, **options)
setattr(belvedere.embedded.database.Database, method, watched)
main()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with belvedere.open(tmp_path / "db") as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        db.execute("CREATE MATERIALIZED VIEW s AS SELECT v % 7 AS k, count(*) AS n FROM t GROUP BY v % 7")
        db.wait(db.put("t", [{"id": -i, "v": i} for i in range(1, 101)]))
    return tmp_path / "db"


def command(path: Path, method: str, after: int, *words: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    """A real `belvedere`, which writes ! to stderr when it calls that method of the database for the n-th time."""
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, method, str(after), "--db", str(path), *words],
        env=ENVIRONMENT,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_until(stream: IO[str] | None, mark: str) -> str:
    assert stream is not None
    seen = ""
    while not seen.endswith(mark):
        character = stream.read(1)
        assert character, f"it ended: {seen}"
        seen += character
    return seen


def interrupted(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it printed; the exit code must be that of an interrupt."""
    read_until(process.stderr, "!")
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=PATIENCE * 3)
    assert process.returncode == 130 and "Traceback" not in error, f"exit code {process.returncode}: {error}"
    return out, error.replace("!", "")


def rows_of(path: Path) -> set[int]:
    """Opens again, with views that are right."""
    with belvedere.open(path) as db:
        assert db.verify("s").ok
        return set(db.scan("t").to_pydict()["id"])


@pytest.mark.parametrize("after", [0, 1, 20])
def test_ctrl_c_during_load_keeps_whole_chunks_and_says_how_many_rows(path: Path, tmp_path: Path, after: int) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"id": i, "v": i}) + "\n" for i in range(200_000)))
    _, error = interrupted(command(path, "put", after, "load", "t", str(file), "--chunk", str(CHUNK)))
    said, kept = error.splitlines(keepends=True)
    assert kept == KEPT and said.startswith("t: at least ") and said.endswith(" rows are loaded\n")
    acknowledged = int(said.split()[3].replace(",", ""))
    found = sorted(i for i in rows_of(path) if i >= 0)
    # the chunk that was interrupted is there as a whole or not at all
    assert len(found) in (acknowledged, acknowledged + CHUNK) and found == list(range(len(found)))
    assert after * CHUNK <= acknowledged < 200_000


@pytest.mark.parametrize("method", ["put", "wait", "close"])
def test_ctrl_c_during_put_leaves_all_rows_or_none(path: Path, method: str) -> None:
    rows = json.dumps([{"id": i, "v": i} for i in range(2000)])
    process = command(path, method, 0, "put", "t", "--json", "-", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(rows)
    process.stdin.close()
    process.stdin = None
    read_until(process.stderr, "!")
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=PATIENCE * 3)
    found = {i for i in rows_of(path) if i >= 0}
    assert found in (set(), set(range(2000)))
    if process.returncode == 0:  # it was quicker
        assert "2,000 written" in out
    else:
        assert process.returncode == 130 and error.replace("!", "") == KEPT
    assert found or method == "put"


@pytest.mark.parametrize(
    ("method", "words"),
    [("execute", ["sql", "-c", "SELECT count(*) AS n FROM t a JOIN t b ON a.v < b.v JOIN t c ON a.v < c.v"])],
)
def test_ctrl_c_during_a_query_ends_it(path: Path, method: str, words: list[str]) -> None:
    with belvedere.open(path) as db:
        db.put("t", [{"id": i, "v": i} for i in range(20_000)])
    out, error = interrupted(command(path, method, 0, *words))
    assert (out, error) == ("", KEPT)
    assert len(rows_of(path)) == 20_100


def test_ctrl_c_at_the_prompt_ends_the_statement_and_not_the_prompt(path: Path) -> None:
    with belvedere.open(path) as db:
        db.put("t", [{"id": i, "v": i} for i in range(20_000)])
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, "execute", "0", "--db", str(path), "sql"],
        env={**ENVIRONMENT, "TERM": "dumb", "XDG_STATE_HOME": str(path.parent)},
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(theirs)
    os.write(ours, b"SELECT count(*) AS n FROM t a JOIN t b ON a.v < b.v JOIN t c ON a.v < c.v;\r")
    read_until(process.stderr, "!")
    process.send_signal(signal.SIGINT)
    read_until(process.stderr, "interrupted\n")
    os.write(ours, b"SELECT count(*) AS rows FROM t;\r")
    read_until(process.stdout, "20100")
    os.write(ours, b"\\q\r")
    process.communicate(timeout=PATIENCE)
    os.close(ours)
    assert process.returncode == 0
    assert len(rows_of(path)) == 20_100
