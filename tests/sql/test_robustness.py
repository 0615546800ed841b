"""Whatever is typed, the answer is a statement or a refusal: never another exception."""

from __future__ import annotations

import random

import pytest

from belvedere.errors import BelvedereError, UnsupportedSql
from belvedere.sql import bind_query, parse_statement
from tests.sql.support import CATALOG
from tests.sql.test_refusals import MISTAKES, UNSUPPORTED
from tests.sql.test_statements import REFUSED

VALID = [
    "SELECT a, sum(b) FILTER (WHERE f) AS x FROM t GROUP BY a HAVING x > 3",
    "SELECT * FROM t LEFT JOIN u USING (a) WHERE s IN ('a', 'b') AND EXISTS (SELECT 1 FROM w WHERE w.k = t.a)",
    "WITH q AS (SELECT a FROM t) SELECT q.a FROM q JOIN u ON q.a = u.a UNION ALL SELECT n FROM u",
]
CORPUS = VALID + [case[0] for case in (*UNSUPPORTED, *MISTAKES, *REFUSED)]


def mangled(rng: random.Random) -> str:
    """A statement with some words dropped, repeated or taken from another one."""
    words = rng.choice(CORPUS).split(" ")
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(words))
        other = rng.choice(rng.choice(CORPUS).split(" "))
        match rng.randrange(4):
            case 0 if len(words) > 1:
                words.pop(at)
            case 1:
                words.insert(at, other)
            case 2:
                words[at] = other
            case _:
                words = words[: at + 1] + words[max(0, at - 2) :]
    return " ".join(words)


@pytest.mark.parametrize("seed", range(4))
def test_mangled_statements(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(500):
        sql = mangled(rng)
        try:
            parse_statement(sql, CATALOG)
        except BelvedereError as error:
            assert str(error)
        except Exception as error:
            raise AssertionError(f"{type(error).__name__} for {sql!r}") from error


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(UnsupportedSql, match="nested too deeply"):
        bind_query(f"SELECT {'(' * 3000}a{')' * 3000} AS x FROM t", CATALOG)


def test_long_conditions_are_fine() -> None:
    condition = " AND ".join(f"a <> {i}" for i in range(500))
    assert bind_query(f"SELECT a FROM t WHERE {condition}", CATALOG).schema[0].name == "a"
    listed = ", ".join(map(str, range(5000)))
    assert bind_query(f"SELECT a FROM t WHERE a IN ({listed})", CATALOG).schema[0].name == "a"
