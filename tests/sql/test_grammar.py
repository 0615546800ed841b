"""Every part of every node that sqlglot knows is read or refused; every word of a text counts.

The tests walk the classes of the installed sqlglot, so that a version which brings new ones is looked at as well.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sqlglot
from sqlglot import exp

from belvedere.errors import BelvedereError, SqlError
from belvedere.sql import adhoc, parse_statement, writes
from belvedere.sql.binder import bind_tree
from belvedere.sql.grammar import FORMS, INSIDE, NOT_NAMES, ONLY, WITHOUT_WORDS
from belvedere.sql.parser import Dialect, SqlText, parse, statements
from belvedere.sql.reading import check, parts, read
from belvedere.sql.statements import Select
from belvedere.sql.types_by_name import is_type
from tests.sql.accepted import ACCEPTED
from tests.sql.support import CATALOG


def _kinds() -> list[type[exp.Expr]]:
    found: set[type[exp.Expr]] = set()
    waiting: list[type[exp.Expr]] = [exp.Expr]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            if kind not in found:
                found.add(kind)
                waiting.append(kind)
    found = {kind for kind in found if issubclass(kind, exp.Expression)}  # the others are abstract
    return sorted(found, key=lambda k: k.__name__)


def _source(text: str) -> SqlText:
    return statements(text)[0]


@cache
def _example(kind: type[exp.Expr]) -> str:
    """An accepted text whose tree has such a node."""
    return next(text for text in ACCEPTED if any(type(n) is kind for n in parse(_source(text)).walk()))


def _refused(source: SqlText, tree: exp.Expr) -> bool:
    try:
        check(source, tree)
    except SqlError as error:
        return error.line is not None and error.hint is not None
    return False


def test_the_grammar_names_only_parts_that_exist() -> None:
    for kind in FORMS:
        assert parts(kind) <= set(kind.arg_types), kind
    assert set(WITHOUT_WORDS) | set(INSIDE) | {kind for kind, _ in ONLY} <= set(FORMS)
    assert len(_kinds()) > 900


@pytest.mark.parametrize(
    ("text", "place"),
    [("SELECT a FROM t WHERE f", exp.Where), ("SELECT a FROM t", exp.From), ("SELECT a FROM t", None)],
    ids=["value", "relation", "statement"],
)
def test_a_node_that_the_grammar_does_not_know_is_refused(text: str, place: type[exp.Expr] | None) -> None:
    source = _source(text)
    accepted = []
    for kind in _kinds():
        if kind in FORMS:
            continue
        node: exp.Expr = kind()
        tree = parse(source)
        if place is None:
            tree = node
        else:
            around = tree.find(place)
            assert around is not None
            around.set("this", node)
        if not _refused(source, tree):
            accepted.append(kind.__name__)
    assert accepted == []


@pytest.mark.parametrize("kind", list(FORMS), ids=lambda k: k.__name__)
def test_a_part_that_the_grammar_does_not_name_is_refused(kind: type[exp.Expr]) -> None:
    source = _source(_example(kind))
    for name in [*kind.arg_types, "a_part_of_next_year"]:
        if name in parts(kind):
            continue
        for value in (True, exp.Var(this="zz"), [exp.Var(this="zz")], "ZZ"):
            tree = parse(source)
            node = next(n for n in tree.walk() if type(n) is kind)
            node.set(name, value)
            assert _refused(source, tree), (name, value)


def _meaning(source: SqlText, tree: exp.Expr) -> str:
    """The bound form of a statement, without positions."""
    if isinstance(tree, exp.Insert):
        return repr(writes.bind_insert(source, tree, CATALOG))
    if isinstance(tree, exp.Delete):
        return repr(writes.bind_delete(source, tree, CATALOG))
    tail = adhoc._take_tail(tree)
    query = bind_tree(source, tree, CATALOG)
    return _placeless(repr((query, adhoc._tail_sql(source, tail, query.schema))))


def _placeless(text: str) -> str:
    return re.sub(r"position=(None|\(\d+, \d+\))", "", text)


def _changes(value: Any) -> Iterator[Any]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, exp.DataType.Type):
        yield exp.DataType.Type.BIGINT if value is not exp.DataType.Type.BIGINT else exp.DataType.Type.TEXT
    elif isinstance(value, str):
        yield value + "1"
        yield None
    elif isinstance(value, list):
        yield value[:-1]
    else:
        yield None


_NO_MEANING = {
    (exp.Div, "typed"): "the same for every text",
    (exp.Div, "safe"): "the same for every text",
    (exp.DPipe, "safe"): "the same for every text",
    (exp.Concat, "coalesce"): "the same for every text",
    (exp.Concat, "safe"): "the same for every text",
    (exp.TryCast, "requires_string"): "the same for every text",
}


def test_each_part_that_the_grammar_names_changes_what_is_bound() -> None:
    noticed: set[tuple[type[exp.Expr], str]] = set()
    for text in ACCEPTED:
        source = _source(text)
        before = _meaning(source, read(source))
        for position, node in enumerate(read(source).walk()):
            for name, value in node.args.items():
                if value is None or value == [] or (type(node), name) in noticed:
                    continue
                for change in _changes(value):
                    tree = read(source)
                    there = next(n for i, n in enumerate(tree.walk()) if i == position)
                    there.args[name] = change
                    try:
                        after = _meaning(source, tree)
                    except Exception:  # a tree that no text has: anything but silence will do
                        after = "refused"
                    if after != before:
                        noticed.add((type(node), name))
    named = {(kind, name) for kind in FORMS for name in parts(kind)}
    unnoticed = {(k.__name__, n) for k, n in named - noticed}
    assert unnoticed == {(k.__name__, n) for k, n in _NO_MEANING}


# Words


def _words() -> list[str]:
    """Every keyword of sqlglot's grammar, in the tokenizer and in the parser's text."""
    root = Path(sqlglot.__file__).parent
    files = [root / "parser.py", *(root / "parsers" / f"{name}.py" for name in ("hive", "spark2", "spark"))]
    found = {word for file in files for word in re.findall(r'"([A-Z][A-Z_ ]+)"', file.read_text())}
    found |= {key.strip() for key in Dialect.Tokenizer.KEYWORDS if re.fullmatch(r"[A-Z_ ]+", key.strip())}
    assert len(found) > 500
    return sorted(found)


_SEEN = [
    "@v",
    ".",
    "*",
    "AS",
    "ALL",
    "SYMMETRIC",
    "OUTER",
    "CROSS",
    "DIRECTED",
    "DISTINCT",
    "PERCENT",
    "ROWS",
    "FORMAT",
]
_SEEN += [
    "COLLATE",
    "DEFAULT",
    "SEARCH",
    "MATERIALIZED",
    "FROM",
    "UNIQUE",
    "PARTITION",
    "LOCAL",
    "OR",
    "EXCEPT",
    "FETCH",
]
"""Words that were once ignored somewhere."""

_PLACES = [
    "SELECT a , b AS c FROM t WHERE a BETWEEN 1 AND 9",
    "SELECT count ( * ) , sum ( DISTINCT a ) FILTER ( WHERE f ) FROM t GROUP BY b HAVING max ( a ) > 1",
    "SELECT t.a FROM t LEFT JOIN u ON t.a = u.a JOIN w ON w.k = u.a",
    "WITH q ( z ) AS ( SELECT a FROM t ) SELECT z FROM q UNION ALL SELECT k FROM w",
    "SELECT cast ( a AS decimal ( 4 , 2 ) ) , substring ( s , 1 , 2 ) , trim ( BOTH 'x' FROM s ) FROM t",
    "SELECT extract ( year FROM d ) , d + INTERVAL '1' DAY , s LIKE 'a' ESCAPE '!' FROM t",
    "SELECT a FROM t WHERE a IN ( SELECT n FROM u ) ORDER BY a DESC NULLS LAST LIMIT 3 OFFSET 2",
    "INSERT INTO w ( k , v ) VALUES ( 1 , 2 )",
    "DELETE FROM w WHERE k = 1",
    "CREATE TABLE z ( a INT PRIMARY KEY , b STRING NOT NULL )",
    "CREATE MATERIALIZED VIEW v KEY ( a ) RETENTION '1h' AS SELECT a FROM t",
]
_NO_OPS = {
    ("SELECT", "ALL"),
    ("SELECT", "DISTINCT"),  # of an IN
    ("LEFT", "OUTER"),
    ("INTO", "TABLE"),
    ("u.a", "INNER"),  # JOIN
}


def _statement(text: str) -> str:
    statement = parse_statement(text, CATALOG)
    if isinstance(statement, Select):
        return _placeless(repr(statement.view.query) + adhoc.select_to_duckdb(statement, str))
    return _placeless(repr(statement)).replace(repr(text), "")


def _ignored(text: str, words: list[str], sample: int | None) -> list[str]:
    found = []
    tokens = text.split(" ")
    before = _statement(text)
    for position in range(1, len(tokens) + 1):

        def same(word: str, at: int = position) -> bool:
            try:
                return _statement(" ".join([*tokens[:at], word, *tokens[at:]])) == before
            except BelvedereError:
                return False

        if same("zz1"):  # a name may stand here, and no word of a clause
            chosen = sorted(NOT_NAMES)
        else:
            chosen = [*(words if sample is None else random.Random(f"{text}{position}").sample(words, sample)), *_SEEN]
        for word in chosen:
            if (tokens[position - 1], word) not in _NO_OPS and same(word):
                found.append(" ".join([*tokens[:position], f">>{word}<<", *tokens[position:]]))
    return found


@pytest.mark.parametrize(
    "place", ["FROM t {}", "FROM t {} WHERE f", "FROM (SELECT a FROM t) {}", "FROM w JOIN t {} ON a = k"]
)
def test_half_a_clause_is_no_name(place: str) -> None:
    for word in NOT_NAMES:
        for text in (f"SELECT a {place.format(word)}", f"SELECT a {word} FROM t"):
            with pytest.raises(SqlError):
                _statement(text)
        _statement(f"SELECT a {place.format(f'`{word}`')}")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) FROM t GROUP GROUP BY b",
        "SELECT a FROM t ORDER ORDER BY a",
        "SELECT a FROM t WHERE WHERE f",
        "SELECT a FROM t WHERE f WHERE f",
        "SELECT count(*) FROM t GROUP BY b GROUP BY b",
        "SELECT count(*) FROM t HAVING HAVING count(*) > 1",
        "SELECT count(*) FROM t HAVING count(*) > 1 HAVING count(*) > 1",
        "SELECT a FROM t ORDER BY a ORDER BY a",
        "SELECT a FROM t LIMIT LIMIT 1",
        "SELECT a FROM t LIMIT 1 LIMIT 1",
        "SELECT a FROM t OFFSET 1 OFFSET 1",
        "SELECT a FROM t UNION UNION SELECT k FROM w",
        "SELECT a FROM t UNION ALL ALL SELECT k FROM w",
        "SELECT DISTINCT DISTINCT a FROM t",
        "SELECT ALL ALL a FROM t",
        "SELECT a FROM FROM t",
        "SELECT t.a FROM t JOIN JOIN u ON t.a = u.a",
        "SELECT t.a FROM t JOIN u ON ON t.a = u.a",
        "SELECT t.a FROM t LEFT LEFT JOIN u ON t.a = u.a",
        "SELECT t.a FROM t INNER INNER JOIN u ON t.a = u.a",
        "SELECT t.a FROM t LEFT INNER JOIN u ON t.a = u.a",
        "SELECT a FROM t JOIN u USING USING (a)",
        "WITH WITH q AS (SELECT a FROM t) SELECT a FROM q",
        "SELECT a AS AS z FROM t",
        "SELECT a NOT NOT IN (1) FROM t",
        "SELECT CASE CASE WHEN f THEN 1 END FROM t",
        "INSERT INTO INTO w VALUES (1, 2)",
        "INSERT INTO w VALUES VALUES (1, 2)",
        "DELETE FROM w WHERE WHERE k = 1",
    ],
)
def test_a_word_or_clause_twice_is_refused(text: str) -> None:
    with pytest.raises(SqlError):
        _statement(text)


_FOREIGN = [
    "NUMBER",
    "STR",
    "CHARACTER",
    "INT4",
    "INT8",
    "FLOAT8",
    "CLOB",
    "NVARCHAR",
    "TIMESTAMPTZ",
    "VARBINARY",
]


def test_types_that_spark_does_not_know_are_refused_in_casts() -> None:
    names = {name for name, kind in Dialect.Tokenizer.KEYWORDS.items() if kind in Dialect.Parser.TYPE_TOKENS}
    assert len(names) > 60
    for name in sorted({*names, *_FOREIGN}):
        for text in (f"SELECT cast(s AS {name}) FROM t", f"SELECT s::{name} FROM t"):
            if is_type(name.lower()) or name == "DOUBLE PRECISION":
                _statement(text)
                continue
            with pytest.raises(SqlError) as caught:
                _statement(text)
            assert caught.value.hint
            assert name not in _FOREIGN or f"type {name.lower()} is not supported" in str(caught.value)
        if name.lower() not in ("date", "timestamp", "timestamp_ltz", "interval"):
            with pytest.raises(SqlError):
                _statement(f"SELECT {name} '1' FROM t")  # a constant of a type is written so for times only


@pytest.mark.parametrize("text", _PLACES)
def test_a_word_put_into_a_text_changes_it_or_is_refused(text: str) -> None:
    assert _ignored(text, _words(), 12) == []


@pytest.mark.long
@pytest.mark.timeout(3600)  # 50 s of CPU, on machines that are busy
@pytest.mark.parametrize("text", _PLACES)
def test_every_word_of_the_grammar_at_every_place(text: str) -> None:
    assert _ignored(text, _words(), None) == []
