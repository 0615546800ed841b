"""Whatever the text, `execute` succeeds or raises an error of ours, with a position inside the text, and then nothing
of the statement has happened.

Texts come from the grammar over random schemas, and as mutations of texts that people wrote. They are carried out, not
only parsed: views are built over rows, queries are answered. A failure names its session and prints the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

import pytest

import belvedere
from belvedere.errors import BelvedereError, CatalogError, Closed, DataError, SqlError
from belvedere.model.recompute import UNANSWERED
from belvedere.model.token import Token
from belvedere.sql.query import relations
from tests.sql.fuzz.mutations import corpora, mutated
from tests.sql.fuzz.statements import Statements

SESSION = 50
"""Texts over one schema, in one database."""
VIEWS = 4
"""Views that a database keeps; older ones are dropped."""


def texts(rng: Random) -> tuple[list[str], Iterator[str]]:
    """Statements that make a schema with rows, and texts over it without end."""
    if rng.random() < 0.6:
        grammar = Statements(rng)
        return grammar.setup, _generated(rng, grammar)
    setup, corpus = rng.choice(corpora())
    return list(setup), _from_corpus(rng, corpus)


def _generated(rng: Random, grammar: Statements) -> Iterator[str]:
    while True:
        text = grammar.next()
        yield mutated(rng, text, [grammar.next(), grammar.next()]) if rng.random() < 0.15 else text


def _from_corpus(rng: Random, corpus: tuple[str, ...]) -> Iterator[str]:
    everything = [text for _, found in corpora() for text in found]
    while True:
        others = [rng.choice(everything), rng.choice(corpus)]
        yield mutated(rng, rng.choice(corpus), others)


class Session:
    """One database, and what must hold after each text."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        rng = Random(f"session {seed}")
        setup, self.texts = texts(rng)
        self.database = belvedere.open()
        for sql in setup:
            self.execute(sql)
        self.succeeded = 0

    def run(self, count: int) -> int:
        """How many of the texts succeeded."""
        try:
            for number in range(count):
                text = next(self.texts)
                try:
                    self.one(text)
                except Exception as error:
                    raise AssertionError(f"session {self.seed}, text {number}: {text!r}: {error!r}") from error
        finally:
            self.database.close()
        return self.succeeded

    def execute(self, text: str) -> None:
        result = self.database.execute(text)
        if isinstance(result, Token):
            self.database.wait(result)

    def one(self, text: str) -> None:
        database = self.database
        catalog = database.catalog
        writes = re.match(r"\s*(insert|delete)", text, re.I) is not None
        before = self.rows() if writes else None
        try:
            self.execute(text)
        except Closed:
            raise
        except (SqlError, CatalogError, DataError) as error:
            assert str(error), "an error without words"
            assert database.catalog is catalog, "a statement that failed changed the catalog"
            assert before is None or self.rows() == before, "a statement that failed wrote rows"
            assert UNANSWERED not in str(error), "DuckDB does not understand us"
            if isinstance(error, SqlError):
                inside(text, error)
            return
        except BelvedereError as error:
            raise AssertionError(f"not an error of a statement: {error!r}") from error
        self.succeeded += 1
        while len(database.catalog.views) > VIEWS:
            read = {name for view in database.catalog.views.values() for name in relations(view.query)}
            name = next(view for view in database.catalog.views if view not in read)
            database.execute(f"DROP MATERIALIZED VIEW `{name.replace('`', '``')}`")

    def rows(self) -> dict[str, list[dict[str, object]]]:
        return {name: self.database.scan(name).to_pylist() for name in self.database.catalog.tables}


def inside(text: str, error: SqlError) -> None:
    """The position of a refusal points into the text, or right behind it."""
    assert error.line is not None and error.column is not None, "no position"
    lines = text.split("\n")
    assert 1 <= error.line <= len(lines), f"line {error.line} of {len(lines)}"
    assert 1 <= error.column <= len(lines[error.line - 1]) + 1, f"column {error.column} of line {error.line}"


def fuzz(seeds: range) -> None:
    succeeded = sum(Session(seed).run(SESSION) for seed in seeds)
    assert succeeded > len(seeds) * SESSION // 10, "hardly any text is right: the generator is of no use"


def test_execute_succeeds_or_refuses() -> None:
    fuzz(range(12))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(20))
def test_execute_succeeds_or_refuses_100_000_texts(part: int) -> None:
    fuzz(range(100 * part, 100 * (part + 1)))
