"""The SQL prompt: when Enter runs, what Tab offers."""

from __future__ import annotations

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from belvedere.cli.prompt import WordCompleter, finished
from belvedere.sql.catalog import Catalog, TableDef
from belvedere.types import BIGINT, Column

CATALOG = Catalog().with_table(TableDef("orders", (Column("id", BIGINT), Column("customer", BIGINT)), ("id",)))


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("SELECT 1;", True),
        ("SELECT 1", False),
        ("SELECT ';", False),
        ("SELECT 1; SELECT", False),
        ("\\d orders", True),
        ("", True),
        ("SELECT 1; -- done", True),
    ],
)
def test_enter_runs_complete_statements_only(text: str, runs: bool) -> None:
    assert finished(text) is runs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM ord", "orders"),
        ("SELECT cust", "customer"),
        ("SEL", "SELECT"),
        ("SELECT coal", "COALESCE"),
        ("SELECT date_tr", "date_trunc"),
    ],
)
def test_tab_offers_names_keywords_and_functions(text: str, expected: str) -> None:
    found = list(WordCompleter(lambda: CATALOG).get_completions(Document(text), CompleteEvent()))
    assert expected in [completion.text for completion in found]


def test_tab_offers_nothing_after_a_space() -> None:
    assert list(WordCompleter(lambda: CATALOG).get_completions(Document("SELECT "), CompleteEvent())) == []
