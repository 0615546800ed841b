"""What queries become: relations, names, groups, subqueries."""

from __future__ import annotations

from belvedere.sql import bind_query
from belvedere.sql.expr import Call
from belvedere.sql.query import (
    Aggregate,
    Distinct,
    Filter,
    Join,
    JoinKind,
    Project,
    Query,
    Scan,
    UnionAll,
    inputs,
)
from tests.sql.support import CATALOG, catalog_of, shape


def bind(sql: str) -> Query:
    return bind_query(sql, CATALOG)


def names(query: Query) -> list[str]:
    return [c.name for c in query.schema]


def find(query: Query, kind: type) -> list[Query]:
    """Every part of that kind, top down."""
    found = [query] if isinstance(query, kind) else []
    return found + [part for below in inputs(query) for part in find(below, kind)]


def test_star_expands_in_order() -> None:
    assert names(bind("SELECT * FROM u JOIN w ON u.n = w.k")) == ["a", "c", "n", "k", "v"]
    assert names(bind("SELECT w.*, u.a FROM u JOIN w ON u.n = w.k")) == ["k", "v", "a"]
    assert names(bind("SELECT * EXCEPT (c) FROM u")) == ["a", "n"]


def test_unnamed_columns_are_called_by_their_text() -> None:
    assert names(bind("SELECT a+1, count(*) FROM u GROUP BY a")) == ["a + 1", "count(*)"]


def test_using_merges_the_columns() -> None:
    query = bind("SELECT * FROM t FULL JOIN u USING (a)")
    assert names(query)[:2] == ["a", "b"] and names(query)[-2:] == ["c", "n"]
    assert isinstance(query, Project)
    assert shape(query.exprs[0]) == ("coalesce", "a", "a")
    right = bind("SELECT a, t.a, u.a FROM t RIGHT JOIN u USING (a)")
    assert isinstance(right, Project)
    assert [e.index for e in right.exprs] == [10, 0, 10]  # type: ignore[union-attr]


def test_a_chain_of_using_joins_has_one_column() -> None:
    assert names(bind("SELECT * FROM u x JOIN u y USING (a) JOIN u z USING (a)")) == ["a", "c", "n", "c", "n", "c", "n"]


def test_names_ignore_case_and_keep_their_spelling() -> None:
    query = bind("SELECT T.A, S FROM T")
    assert names(query) == ["A", "S"]
    assert [e.name for e in query.exprs] == ["a", "s"]  # type: ignore[union-attr]
    assert find(query, Scan)[0].name == "t"  # type: ignore[union-attr]


def test_comma_binds_looser_than_join() -> None:
    query = bind("SELECT 1 AS one FROM t, u RIGHT JOIN w ON u.n = w.k")
    cross = find(query, Join)[0]
    assert isinstance(cross, Join) and cross.kind is JoinKind.CROSS and isinstance(cross.left, Scan)
    assert isinstance(cross.right, Join) and cross.right.kind is JoinKind.RIGHT
    assert cross.right.position == (1, 33)


def test_outer_joins_make_columns_nullable() -> None:
    query = bind("SELECT t.a, w.k FROM t LEFT JOIN w ON t.a = w.k")
    assert [c.nullable for c in query.schema] == [False, True]


def test_group_by_names_positions_and_expressions() -> None:
    for sql in (
        "SELECT upper(s) AS g, count(*) AS n FROM t GROUP BY upper(s)",
        "SELECT upper(s) AS g, count(*) AS n FROM t GROUP BY 1",
        "SELECT upper(s) AS g, count(*) AS n FROM t GROUP BY g",
        "SELECT upper(s) AS g, count(*) AS n FROM t GROUP BY ALL",
    ):
        query = bind(sql)
        assert isinstance(query, Project) and isinstance(query.input, Aggregate)
        assert [shape(g) for g in query.input.group] == [("upper", "s")]
        assert [e.index for e in query.exprs] == [0, 1]  # type: ignore[union-attr]


def test_a_column_wins_over_an_alias_in_group_by() -> None:
    query = bind("SELECT b + 1 AS a, count(*) AS n FROM t GROUP BY a, b")
    assert isinstance(query, Project) and isinstance(query.input, Aggregate)
    assert [shape(g) for g in query.input.group] == ["a", "b"]


def test_having_sees_aliases_and_new_aggregates() -> None:
    query = bind("SELECT b, count(*) AS n FROM t GROUP BY b HAVING n > 1 AND sum(a) < 10 AND b + 1 = 3")
    assert isinstance(query, Project) and isinstance(query.input, Filter)
    aggregate = query.input.input
    assert isinstance(aggregate, Aggregate)
    assert [c.function for c in aggregate.calls] == ["count", "sum"]
    assert isinstance(query.input.predicate, Call) and len(query.input.predicate.args) == 3


def test_equal_aggregates_are_computed_once() -> None:
    query = bind("SELECT sum(a) AS x, sum(a) + 1 AS y, SUM(t.a) * 2 AS z FROM t")
    (aggregate,) = find(query, Aggregate)
    assert isinstance(aggregate, Aggregate) and len(aggregate.calls) == 1 and aggregate.group == ()


def test_aggregate_calls() -> None:
    (aggregate,) = find(
        bind(
            "SELECT count(1), count(s), count(DISTINCT s), sum(a) FILTER (WHERE f), count(a, s), min(DISTINCT a) FROM t"
        ),
        Aggregate,
    )
    assert isinstance(aggregate, Aggregate)
    found = [
        (c.function, None if c.arg is None else shape(c.arg), c.distinct, None if c.filter is None else shape(c.filter))
        for c in aggregate.calls
    ]
    both = ("and", ("is_not_null", "a"), ("is_not_null", "s"))
    assert found == [
        ("count", None, False, None),
        ("count", "s", False, None),
        ("count", "s", True, None),
        ("sum", "a", False, "f"),
        ("count", None, False, both),
        ("min", "a", False, None),
    ]


def test_distinct_and_union() -> None:
    query = bind("SELECT a FROM t UNION SELECT b FROM t UNION ALL SELECT n FROM u")
    assert isinstance(query, UnionAll) and len(query.inputs) == 2
    assert isinstance(query.inputs[0], Distinct)
    assert {str(c.type) for i in query.inputs for c in i.schema} == {"bigint"}
    flat = bind("SELECT a FROM t UNION ALL SELECT a FROM u UNION ALL SELECT k FROM w")
    assert isinstance(flat, UnionAll) and len(flat.inputs) == 3
    assert isinstance(bind("SELECT DISTINCT a FROM t"), Distinct)


def test_with_is_inlined_and_shadows_tables() -> None:
    query = bind("WITH u AS (SELECT a AS z FROM t), v(y) AS (SELECT z FROM u) SELECT y FROM v")
    assert {s.name for s in find(query, Scan)} == {"t"}  # type: ignore[union-attr]
    assert names(query) == ["y"]


def test_exists_becomes_a_semi_join() -> None:
    query = bind("SELECT a FROM t WHERE f AND EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.n > t.b AND u.c = 'x')")
    (join,) = find(query, Join)
    assert isinstance(join, Join) and join.kind is JoinKind.SEMI and join.position == (1, 29)
    assert join.condition is not None
    assert shape(join.condition) == ("and", ("eq", "a", "a"), ("gt", ("cast bigint", "n"), "b"))
    assert isinstance(join.right, Filter) and shape(join.right.predicate) == ("eq", "c", "x")
    assert isinstance(join.left, Filter)


def test_exists_without_a_tie_joins_on_a_constant() -> None:
    query = bind("SELECT a FROM t WHERE NOT EXISTS (SELECT 1 FROM u)")
    (join,) = find(query, Join)
    assert isinstance(join, Join) and join.kind is JoinKind.ANTI and isinstance(join.right, Distinct)
    assert join.condition is not None and shape(join.condition) == ("eq", "_one", "_one")
    assert names(query) == ["a"]


def test_in_becomes_a_semi_join() -> None:
    (join,) = find(bind("SELECT a FROM t WHERE b IN (SELECT n FROM u GROUP BY n HAVING count(*) > 1)"), Join)
    assert isinstance(join, Join) and join.kind is JoinKind.SEMI
    assert join.condition is not None and shape(join.condition) == ("eq", "b", ("cast bigint", "n"))
    (pair,) = find(bind("SELECT a FROM t WHERE (a, s) IN (SELECT a, c FROM u)"), Join)
    assert isinstance(pair, Join) and pair.condition is not None
    assert shape(pair.condition) == ("and", ("eq", "a", "a"), ("eq", "s", "c"))


def test_not_in_takes_as_many_anti_joins_as_nulls_require() -> None:
    def conditions(sql: str) -> list[object]:
        joins = find(bind(sql), Join)
        assert all(isinstance(j, Join) and j.kind is JoinKind.ANTI for j in joins)
        return [shape(j.condition) for j in reversed(joins)]  # type: ignore[union-attr]

    equal, constant = ("eq", "a", "v"), ("eq", "_one", "_one")
    assert conditions("SELECT a FROM t WHERE a NOT IN (SELECT v FROM w)") == [equal]
    assert conditions("SELECT a FROM t WHERE a NOT IN (SELECT n FROM u)") == [("eq", "a", "n"), constant]
    marked = ("eq", ("case", ("is_null", "n"), 1, None), "_one")
    assert conditions("SELECT a FROM u WHERE n NOT IN (SELECT v FROM w)") == [("eq", "n", "v"), marked]
    assert conditions("SELECT a FROM u WHERE NOT (n IN (SELECT y.n FROM u y))") == [("eq", "n", "n"), constant, marked]
    tie = ("eq", "k", "a")
    assert conditions("SELECT a FROM u WHERE n NOT IN (SELECT v FROM w WHERE k = u.a)") == [
        ("and", ("eq", "n", "v"), tie),
        ("and", ("is_null", "n"), tie),
    ]


def test_views_over_views_are_scans_of_their_name() -> None:
    catalog = catalog_of(
        "CREATE TABLE o (id BIGINT PRIMARY KEY, c STRING, total DECIMAL(12,2))",
        "CREATE MATERIALIZED VIEW spend AS SELECT c, sum(total) AS total FROM o GROUP BY c",
    )
    query = bind_query("SELECT max(total) AS top FROM Spend", catalog)
    (scan,) = find(query, Scan)
    assert isinstance(scan, Scan) and scan.name == "spend" and str(scan.schema[1].type) == "decimal(22,2)"
