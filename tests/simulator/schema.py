"""The tables and views of histories, and what each view is, written by hand in Python.

The evaluations share no code with the planner or the engine: each takes the live rows of the base tables (and, for a
view over a view, its rows) and returns a list of rows. NULL is None; the comparisons say what SQL says of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Row: TypeAlias = tuple[Any, ...]
Live: TypeAlias = dict[int, dict[str, Any]]

TABLES = {
    "orders": ("customer", "amount", "kind", "note"),
    "customers": ("region", "name"),
}
TIES = {"orders": "lineage", "customers": "value"}
ADDED = ("note",)
"""Columns that a table has once somebody has added them."""
KEYS = {"orders": 10, "customers": 5}


@dataclass
class Facts:
    """What an evaluation starts from."""

    orders: Live
    customers: Live
    views: Mapping[str, list[Row]]


def _big(limit: int) -> Callable[[Facts], list[Row]]:
    def evaluate(facts: Facts) -> list[Row]:
        found = []
        for key, row in facts.orders.items():
            if row["amount"] is not None and row["amount"] >= limit:
                found.append((key, row["customer"], row["amount"]))
        return found

    return evaluate


def _spend(kind: str | None) -> Callable[[Facts], list[Row]]:
    def evaluate(facts: Facts) -> list[Row]:
        groups: dict[Any, list[Any]] = {}
        for row in facts.orders.values():
            if kind is None or row["kind"] == kind:
                groups.setdefault(row["customer"], []).append(row["amount"])
        found = []
        for customer, amounts in groups.items():
            known = [amount for amount in amounts if amount is not None]
            if known:
                found.append((customer, len(amounts), sum(known), min(known), max(known)))
            else:
                found.append((customer, len(amounts), None, None, None))
        return found

    return evaluate


def _named(facts: Facts) -> list[Row]:
    found = []
    for key, row in facts.orders.items():
        customer = facts.customers.get(row["customer"]) if row["customer"] is not None else None
        if customer is not None:
            found.append((key, row["amount"], customer["name"]))
    return found


def _optional(facts: Facts) -> list[Row]:
    found = []
    for key, row in facts.orders.items():
        customer = facts.customers.get(row["customer"]) if row["customer"] is not None else None
        found.append((key, None if customer is None else customer["region"]))
    return found


def _levels(facts: Facts) -> list[Row]:
    groups: dict[int, list[Any]] = {}
    for _, n, total, _, _ in facts.views["spend"]:
        groups.setdefault(n, []).append(total)
    found = []
    for n, totals in groups.items():
        known = [total for total in totals if total is not None]
        found.append((n, len(totals), sum(known) if known else None))
    return found


def _words(facts: Facts) -> list[Row]:
    words = {row["kind"] for row in facts.orders.values()} | {row["name"] for row in facts.customers.values()}
    return [(word,) for word in words]


def _totals(facts: Facts) -> list[Row]:
    known = [row["amount"] for row in facts.orders.values() if row["amount"] is not None]
    return [(len(facts.orders), sum(known) if known else None, max(known) if known else None)]


def _notes(facts: Facts) -> list[Row]:
    counts = Counter(row["note"] for row in facts.orders.values())
    return list(counts.items())


@dataclass(frozen=True)
class View:
    name: str
    query: str
    evaluate: Callable[[Facts], list[Row]]
    reads: tuple[str, ...] = ()
    """Views that it reads."""

    def create(self, replace: bool = False) -> str:
        return f"CREATE {'OR REPLACE ' if replace else ''}MATERIALIZED VIEW {self.name} AS {self.query}"


_SPEND = (
    "SELECT customer, count(*) AS n, sum(amount) AS total, min(amount) AS low, max(amount) AS high "
    "FROM orders{} GROUP BY customer"
)

BIG = View("big", "SELECT id, customer, amount FROM orders WHERE amount >= 40", _big(40))
BIGGER = View("big", "SELECT id, customer, amount FROM orders WHERE amount >= 70", _big(70))
SPEND = View("spend", _SPEND.format(""), _spend(None))
SPEND_ON_A = View("spend", _SPEND.format(" WHERE kind = 'a'"), _spend("a"))
NAMED = View("named", "SELECT o.id, o.amount, c.name FROM orders o JOIN customers c ON o.customer = c.id", _named)
OPTIONAL = View("optional", "SELECT o.id, c.region FROM orders o LEFT JOIN customers c ON o.customer = c.id", _optional)
LEVELS = View(
    "levels", "SELECT n, count(*) AS customers, sum(total) AS total FROM spend GROUP BY n", _levels, ("spend",)
)
WORDS = View(
    "words",
    "SELECT DISTINCT word FROM (SELECT kind AS word FROM orders UNION ALL SELECT name AS word FROM customers) AS w",
    _words,
)
TOTALS = View("totals", "SELECT count(*) AS n, sum(amount) AS total, max(amount) AS high FROM orders", _totals)

NOTES = View("notes", "SELECT note, count(*) AS n FROM orders GROUP BY note", _notes)
"""Of a column that is added later."""

ADD_NOTE = "ALTER TABLE orders ADD COLUMN note BIGINT"
CREATE_EXTRA = "CREATE TABLE extra (id BIGINT PRIMARY KEY, n BIGINT)"
DROP_EXTRA = "DROP TABLE extra"
"""A table that nobody writes: it races with other changes of the catalog."""

VIEWS = (NOTES, BIG, BIGGER, SPEND, SPEND_ON_A, NAMED, OPTIONAL, LEVELS, WORDS, TOTALS)
BY_QUERY = {view.query: view for view in VIEWS}
