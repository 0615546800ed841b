"""An interrupt at any moment of any call leaves a database that works, and loses nothing that was acknowledged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interrupts.storm import Storm, by_bytecode

# A file object that an interrupt took from its reader is closed by the collector, which says so.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def storm(path: Path, seed: int, steps: int, enough: int) -> Storm:
    """So many steps, and more if few calls were interrupted: others came after the end of their call, of which there
    are more on a busy machine, where calls wait longer."""
    made = Storm(path, seed, by_bytecode(seed))
    for step in range(4 * steps):
        if step >= steps and sum(made.interrupted.values()) > enough:
            break
        made.step()
        if step % 50 == 49:
            made.check()
    made.end()
    return made


@pytest.mark.parametrize("seed", range(2))
def test_an_exception_before_any_bytecode_of_any_call_leaves_a_database_that_works(tmp_path: Path, seed: int) -> None:
    made = storm(tmp_path, seed, 150, 75)
    assert sum(made.interrupted.values()) > 75


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 120))
def test_thousands_of_exceptions_before_random_bytecodes(tmp_path: Path, seed: int) -> None:
    made = storm(tmp_path, seed, 1000, 700)
    assert sum(made.interrupted.values()) > 700
