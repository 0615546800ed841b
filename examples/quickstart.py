"""The first five minutes: a table, a view, writes, a read that includes them, and a check.

Run with: python examples/quickstart.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import belvedere


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        db = belvedere.open(Path(directory) / "shop.bv")
        db.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, total DECIMAL(12,2))")
        db.execute(
            "CREATE MATERIALIZED VIEW spend AS "
            "SELECT customer, count(*) AS n, sum(total) AS total FROM orders GROUP BY customer"
        )

        # One call is one atomic, durable write. The token names it.
        token = db.put(
            "orders",
            [
                {"id": 1, "customer": 7, "total": "9.50"},
                {"id": 2, "customer": 7, "total": "30.25"},
                {"id": 3, "customer": 8, "total": "12.00"},
            ],
        )
        print("customer 7:", db.get("spend", 7, after=token))

        # Change one column, delete another row: the view follows.
        db.put("orders", [{"id": 2, "total": "0.50"}])
        token = db.delete("orders", [1])
        print("customer 7:", db.get("spend", 7, after=token))

        # All rows, as an Arrow table.
        print(db.scan("spend").to_pylist())

        # Recompute with DuckDB and compare.
        print(db.verify("spend"))
        db.close()


if __name__ == "__main__":
    main()
