"""What a WHERE says about the first columns of a key, so that an ad-hoc query reads only those rows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

import belvedere
from belvedere.embedded.database import Database
from belvedere.sql import parse_statement
from belvedere.sql.adhoc import key_prefixes
from belvedere.sql.statements import Select
from tests.sql.support import CATALOG

KEYS = {"t": ["a", "s", "p"], "u": ["a", "c"], "w": ["k"]}


def prefixes(sql: str) -> dict[str, Any]:
    statement = parse_statement(sql, CATALOG)
    assert isinstance(statement, Select)
    return key_prefixes(statement.view.query, KEYS.__getitem__)


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT * FROM u WHERE a = 1", {"u": (1,)}),
        ("SELECT n FROM u WHERE 'x' = c AND a = 1 AND n > 3 ORDER BY n LIMIT 2", {"u": (1, "x")}),
        ("SELECT count(*) FROM t WHERE a = 1 AND s = 'x' AND p = 2", {"t": (1, "x", Decimal("2.00"))}),
        ("SELECT * FROM t WHERE a = 1 AND p = 2", {"t": (1,)}),
        ("SELECT * FROM u WHERE c = 'x'", {}),
        ("SELECT * FROM u WHERE a = 1 OR c = 'x'", {}),
        ("SELECT * FROM u WHERE NOT a = 1", {}),
        ("SELECT * FROM u WHERE a = NULL", {}),
        ("SELECT * FROM u WHERE a = 1.5", {}),
        ("SELECT * FROM u WHERE a = n", {}),
        ("SELECT * FROM u WHERE a + 1 = 1", {}),
        ("SELECT * FROM u x JOIN u y ON x.n = y.n WHERE x.a = 1", {}),
        ("SELECT * FROM (SELECT * FROM u WHERE a = 1) x JOIN w ON x.n = w.k", {"u": (1,)}),
        ("SELECT a FROM u WHERE a = 1 UNION ALL SELECT a FROM u WHERE a = 2", {}),
        ("SELECT a FROM u WHERE a = 1 UNION ALL SELECT k FROM w WHERE k = 2", {"u": (1,), "w": (2,)}),
        ("SELECT a, count(*) FROM u GROUP BY a HAVING a = 1", {}),
    ],
)
def test_prefixes_are_found_where_comparisons_stand_right_above_a_relation(sql: str, found: dict[str, Any]) -> None:
    assert prefixes(sql) == found


@pytest.fixture
def db() -> Any:
    with belvedere.open(":memory:") as database:
        database.execute("CREATE TABLE u (a INT, c STRING, n INT, PRIMARY KEY (a, c))")
        database.execute("CREATE MATERIALIZED VIEW v AS SELECT a, n, count(*) AS rows FROM u GROUP BY a, n")
        rows = [{"a": i % 5, "c": f"c{i}", "n": i % 3} for i in range(60)]
        database.wait(database.put("u", rows))
        yield database


@pytest.mark.parametrize(
    ("sql", "read"),
    [
        ("SELECT n, rows FROM v WHERE a = 2 ORDER BY n", {"v": 3}),
        ("SELECT n, rows FROM v WHERE a = 2 AND n = 1", {"v": 1}),
        ("SELECT c FROM u WHERE a = 3 ORDER BY c", {"u": 12}),
        (
            "SELECT v.rows, u.c FROM (SELECT * FROM v WHERE a = 1) v JOIN u ON u.a = v.a AND u.n = v.n",
            {"v": 3, "u": 60},
        ),
        ("SELECT * FROM v WHERE n = 1", {"v": 15}),
    ],
)
def test_only_rows_of_the_prefix_are_read_and_the_answer_is_the_same(
    db: Database, sql: str, read: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, int] = {}
    consistent = db._consistent

    def watched(*args: Any) -> Any:
        found = consistent(*args)
        seen.update({name: table.num_rows for name, table in found[1].items()})
        return found

    with monkeypatch.context() as patched:
        patched.setattr(db, "_consistent", watched)
        answer = db.execute(sql)
        assert seen == read
        patched.setattr(db, "_consistent", lambda names, prefixes: consistent(names))
        everything = db.execute(sql)
    order = [(column, "ascending") for column in answer.column_names]
    assert answer.num_rows > 0
    assert answer.sort_by(order).equals(everything.sort_by(order))
