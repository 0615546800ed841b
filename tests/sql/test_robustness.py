"""Whatever is typed, the answer is a statement or a refusal: never another exception."""

from __future__ import annotations

import random

import pytest

from belvedere.errors import BelvedereError, SqlError, UnsupportedSql
from belvedere.sql import bind_query, parse_statement
from belvedere.sql.statements import Insert
from tests.sql.support import CATALOG, refused
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


@pytest.mark.parametrize(
    ("sql", "message", "position"),
    [
        (
            "SELECT t.a FROM t JOIN (SELECT d AS a FROM t) x USING (a)",
            "column 'a' of USING is int on the left",
            (1, 56),
        ),
        ("SELECT 1 FROM t FULL JOIN (SELECT f AS a FROM t) x USING (a)", "and boolean on the right", (1, 59)),
        ("SELECT timestamp '0001-01-01 00:00:00 +18:00' AS x FROM t", "is not a timestamp", (1, 18)),
        ("SELECT a FROM t WHERE x > 1e", "1e is not a number", (1, 27)),
        ("SELECT d + interval 'Infinity' day AS x FROM t", "'Infinity' is not a number of days", (1, 21)),
        ("SELECT d + interval 'NaN' hour AS x FROM t", "'NaN' is not a number of hours", (1, 21)),
        ("SELECT cast(a AS decimal(x)) AS x FROM t", "type decimal(x) is not supported", (1, 18)),
        ("SELECT cast(a AS decimal(5,2,1)) AS x FROM t", "decimal(5,2,1) does not exist", (1, 18)),
        ("SELECT a, cast(true AS decimal(39,1)) AS x FROM t", "decimal(39,1) does not exist", (1, 24)),
        ("SELECT d + interval 1e999999999 minute AS x FROM t", "'1e999999999' is not supported here", (1, 21)),
        ("SELECT d + interval '99999999999' day AS x FROM t", "99999999999 days is out of range", (1, 21)),
        ("SELECT ts + interval '999999999' year AS x FROM t", "999999999 years is out of range", (1, 22)),
        ("SELECT FROM t", "'FROM' is not supported here", (1, 8)),
        ("SELECT a FROM t UNION ALL SELECT FROM t", "'FROM' is not supported here", (1, 34)),
        ("ELSE SELECT a FROM t", "expected one statement", (1, 1)),
    ],
)
def test_what_the_fuzz_found(sql: str, message: str, position: tuple[int, int]) -> None:
    refused(sql, message, position, kind=UnsupportedSql if "is not supported" in message else SqlError)


def test_a_number_out_of_range_does_not_fit_an_integer() -> None:
    for value, column in (("1e400", 23), ("-1e400", 24), ("cast('1e999' AS DOUBLE)", 28), ("9" * 38, 23)):
        refused(f"INSERT INTO w VALUES ({value}, 1)", "does not fit column 'k'", (1, column), parse=parse_statement)


def test_adjacent_strings_are_one_constant() -> None:
    statement = parse_statement("INSERT INTO u VALUES (1, 'a' 'b', 2)", CATALOG)
    assert isinstance(statement, Insert) and statement.rows == ((1, "ab", 2),)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(UnsupportedSql, match="nested too deeply"):
        bind_query(f"SELECT {'(' * 3000}a{')' * 3000} AS x FROM t", CATALOG)


def test_long_conditions_are_fine() -> None:
    condition = " AND ".join(f"a <> {i}" for i in range(500))
    assert bind_query(f"SELECT a FROM t WHERE {condition}", CATALOG).schema[0].name == "a"
    listed = ", ".join(map(str, range(5000)))
    assert bind_query(f"SELECT a FROM t WHERE a IN ({listed})", CATALOG).schema[0].name == "a"
