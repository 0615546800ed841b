"""The shop of the demo: tables, views, and a stream of writes that can be computed again.

Operation *n* depends on *n* alone, so a second process can say what the tables must contain after any number of
operations. That is how the demo shows, from outside, that a crash lost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from belvedere.embedded.database import Database

TABLES = (
    "CREATE TABLE customers (id BIGINT PRIMARY KEY, name STRING, city STRING)",
    "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, channel STRING)",
    "CREATE TABLE items (id BIGINT PRIMARY KEY, order_id BIGINT, product STRING, quantity INT, price DECIMAL(10,2))",
)
VIEWS = {
    "sales": """
        SELECT product, count(*) AS lines, sum(quantity) AS units, sum(quantity * price) AS revenue
        FROM items GROUP BY product""",
    "order_lines": """
        SELECT i.id AS item, c.name AS customer, c.city, i.product, i.quantity * i.price AS amount
        FROM items i JOIN orders o ON i.order_id = o.id JOIN customers c ON o.customer = c.id""",
    "cities": """
        SELECT city, count(*) AS lines, sum(amount) AS revenue, max(amount) AS largest
        FROM order_lines GROUP BY city""",
}
KINDS = {"sales": "an aggregate", "order_lines": "a join of three tables", "cities": "a view over order_lines"}

PRODUCTS = ("lamp", "chair", "table", "shelf", "carpet", "mirror", "clock", "vase", "desk", "sofa")
CITIES = ("Lisbon", "Oslo", "Turin", "Ghent", "Graz", "Lyon", "Porto", "Malmö")
NAMES = ("Ada", "Bao", "Chloé", "Dev", "Elif", "Femi", "Goran", "Hana", "Ines", "Jun")
CUSTOMERS = 1_000

ORDERS_PER_STEP = 100
ITEMS_PER_STEP = 300
CHANGED_PER_STEP = 60
DELETED_PER_STEP = 30
OPERATIONS_PER_STEP = 3


def create(db: Database) -> None:
    """Tables, customers, views."""
    for statement in TABLES:
        db.execute(statement)
    ids = np.arange(CUSTOMERS)
    names = [f"{NAMES[i % len(NAMES)]} {i}" for i in ids]
    cities = [CITIES[int(c)] for c in np.random.default_rng(7).zipf(1.6, CUSTOMERS) % len(CITIES)]
    db.put("customers", pa.table({"id": ids, "name": names, "city": cities}))
    for name, query in VIEWS.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")


@dataclass(frozen=True, slots=True)
class Step:
    """Three operations: new orders, new and changed items, deleted items."""

    orders: pa.Table
    items: pa.Table
    deleted: list[int]

    @property
    def rows(self) -> tuple[int, int, int]:
        return len(self.orders), len(self.items), len(self.deleted)


def step(number: int) -> Step:
    """The writes of one step, a function of its number."""
    random = np.random.default_rng(number)
    first_order, first_item = number * ORDERS_PER_STEP, number * ITEMS_PER_STEP
    fresh = np.arange(first_item, first_item + ITEMS_PER_STEP)
    # Earlier items change or go; a deleted item may be written again, as in any shop that corrects mistakes.
    known = max(first_item, 1)
    changed = np.unique(random.integers(0, known, CHANGED_PER_STEP)) if number else np.empty(0, np.int64)
    deleted = np.unique(random.integers(0, known, DELETED_PER_STEP)) if number else np.empty(0, np.int64)
    ids = np.concatenate([fresh, changed])
    orders = pa.table(
        {
            "id": np.arange(first_order, first_order + ORDERS_PER_STEP),
            "customer": random.integers(0, CUSTOMERS, ORDERS_PER_STEP),
            "channel": np.array(["web", "shop", "phone"])[random.integers(0, 3, ORDERS_PER_STEP)],
        }
    )
    cents = pa.array(random.integers(100, 50_000, len(ids))).cast(pa.decimal128(20, 0))
    items = pa.table(
        {
            "id": ids,
            "order_id": ids // (ITEMS_PER_STEP // ORDERS_PER_STEP),
            "product": np.array(PRODUCTS)[random.zipf(1.5, len(ids)) % len(PRODUCTS)],
            "quantity": random.integers(1, 10, len(ids)).astype(np.int32),
            "price": _cents(cents),
        }
    )
    return Step(orders, items, deleted.tolist())


def _cents(cents: pa.Array) -> pa.Array:
    """Whole cents as decimal(10,2)."""
    hundredth = pa.scalar("0.01").cast(pa.decimal128(3, 2))
    return pa.compute.multiply(cents, hundredth).cast(pa.decimal128(10, 2))


@dataclass(frozen=True, slots=True)
class Totals:
    """What the base tables contain, as far as the demo compares it."""

    orders: int
    items: int
    units: int

    @staticmethod
    def query(db: Database) -> Totals:
        orders = db.execute("SELECT count(*) AS n FROM orders")
        items = db.execute("SELECT count(*) AS n, sum(quantity) AS units FROM items")
        assert isinstance(orders, pa.Table) and isinstance(items, pa.Table)
        found = items.to_pylist()[0]
        return Totals(orders["n"][0].as_py(), found["n"], found["units"] or 0)


class Model:
    """The same tables in plain numpy: what they must contain after the first n operations."""

    def __init__(self) -> None:
        self.operations = 0
        self.orders = 0
        self.quantity = np.zeros(0, np.int64)  # by item id; 0 means absent

    def advance(self, operations: int) -> Totals:
        """Apply operations up to that number (exclusive) and give the totals."""
        while self.operations < operations:
            number, part = divmod(self.operations, OPERATIONS_PER_STEP)
            writes = step(number)
            if part == 0:
                self.orders += len(writes.orders)
            elif part == 1:
                self.quantity.resize((number + 1) * ITEMS_PER_STEP, refcheck=False)
                self.quantity[writes.items["id"].to_numpy()] = writes.items["quantity"].to_numpy()
            else:
                self.quantity[writes.deleted] = 0
            self.operations += 1
        return Totals(self.orders, int(np.count_nonzero(self.quantity)), int(self.quantity.sum()))
