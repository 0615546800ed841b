"""The same with real signals, and with threads that raise in others, in processes of their own (see `victim`)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import belvedere
from tests.interrupts.storm import PATIENCE

REPOSITORY = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, sys.path)])}


def storm(path: Path, kind: str, seed: int, steps: int, seconds: int) -> int:
    """How many calls were interrupted; fails with what all threads did if it took too long."""
    words = ["-m", "tests.interrupts.victim", str(path), kind, str(seed), str(steps), str(seconds)]
    done = subprocess.run(
        [sys.executable, *words], env=ENVIRONMENT, capture_output=True, text=True, timeout=seconds + PATIENCE
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return int(done.stdout)


@pytest.mark.parametrize("kind", ["signal", "thread"])
def test_an_interrupt_at_any_time_leaves_a_database_that_works(tmp_path: Path, kind: str) -> None:
    assert storm(tmp_path, kind, 1, 60, 200) > 5  # about 29 of 60


@pytest.mark.long
@pytest.mark.parametrize("kind", ["signal", "thread"])
@pytest.mark.parametrize("seed", range(100, 105))
def test_thousands_of_interrupts_at_random_times(tmp_path: Path, kind: str, seed: int) -> None:
    assert storm(tmp_path, kind, seed, 1000, 250) > 200


def script(text: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", text, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


WRITING = """
import faulthandler, sys, belvedere
faulthandler.dump_traceback_later(60, exit=True)
db = belvedere.open(sys.argv[1])
db.execute("CREATE TABLE t (id BIGINT, v BIGINT, PRIMARY KEY (id))")
n = interrupts = 0
while interrupts < 20:
    try:
        print("writing", flush=True)
        while True:
            db.put("t", [{"id": n, "v": 1}], timeout=10)
            n += 1
    except KeyboardInterrupt:
        interrupts += 1
db.close()
print(n, flush=True)
"""


def test_ctrl_c_during_put_does_not_wedge_the_database(tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    with script(WRITING, path) as process:
        assert process.stdout is not None and process.stderr is not None
        for _ in range(20):
            assert process.stdout.readline() == "writing\n"
            process.send_signal(signal.SIGINT)
        said = process.stdout.readline()
        assert process.wait(PATIENCE) == 0, process.stderr.read()
    with belvedere.open(path) as db:
        found = db.scan("t").num_rows
    # the one that was interrupted may be there: it is the next one that is written again
    assert found in (int(said), int(said) + 1)


LOADING = """
import faulthandler, signal, sys, threading
from importlib.machinery import ExtensionFileLoader
import belvedere

calls = 0

def interrupt(frame, event, argument):
    # the fifth Python function that the extension calls: it makes its enumerations, and cannot stand an exception
    global calls
    calls += 1
    if calls == 5:
        sys.settrace(None)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

def exec_module(self, module, original=ExtensionFileLoader.exec_module):
    if module.__name__ == "_duckdb":
        sys.settrace(interrupt)
    try:
        original(self, module)
    finally:
        sys.settrace(None)

ExtensionFileLoader.exec_module = exec_module
faulthandler.dump_traceback_later(60, exit=True)
with belvedere.open(":memory:") as db:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    try:
        db.execute("SELECT count(*) AS n FROM t")
    except KeyboardInterrupt:
        print("interrupted", calls)
    print(db.execute("SELECT count(*) AS n FROM t").to_pylist())
"""


def test_ctrl_c_while_duckdb_is_loaded_ends_the_query_and_not_the_process() -> None:
    with script(LOADING) as process:
        out, error = process.communicate(timeout=90)
    assert (process.returncode, out) == (0, "interrupted 5\n[{'n': 0}]\n"), error


KERNELS = """
import faulthandler, gc, signal, threading
from llvmlite.binding import ffi
import belvedere

faulthandler.dump_traceback_later(60, exit=True)
db = belvedere.open(":memory:")
db.execute("CREATE TABLE t (id BIGINT, s STRING, PRIMARY KEY (id, s))")
db.execute("CREATE MATERIALIZED VIEW v AS SELECT id, s FROM t")
interrupts, loaders = 0, set()

def add_module(*arguments, original=ffi.lib.LLVMPY_AddModule):
    # LLVM owns the module from here on, which llvmlite notes a moment later. An interrupt in between makes two owners
    # free it, and that may end the process or not: so it must not be a thread that interrupts reach.
    global interrupts
    original(*arguments)
    loaders.add(threading.current_thread().name)
    if interrupts < 3:
        interrupts += 1
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

db.wait(db.put("t", {"id": 1, "s": "a"}))
ffi.lib._fntab["LLVMPY_AddModule"] = add_module
seen = 0
while True:
    try:
        db.get("v", (1, "a"))
        rows = db.scan("v").to_pylist()
        break
    except KeyboardInterrupt:
        seen += 1
        gc.collect()
db.close()
print(rows, interrupts, seen > 0, loaders)
"""


def test_ctrl_c_while_a_kernel_is_loaded_ends_the_call_and_not_the_process() -> None:
    with script(KERNELS) as process:
        out, error = process.communicate(timeout=90)
    assert (process.returncode, out) == (0, "[{'id': 1, 's': 'a'}] 3 True {'belvedere-call'}\n"), error
