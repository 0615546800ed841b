"""A small shop on disk, and a way to run commands against it in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import belvedere
from belvedere.cli.main import cli

SCHEMA = (
    "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, total DECIMAL(12,2))",
    "CREATE MATERIALIZED VIEW spend AS "
    "SELECT customer, count(*) AS n, sum(total) AS total FROM orders GROUP BY customer",
)


@dataclass
class Shop:
    """A database directory and the command line pointed at it."""

    path: Path

    def run(self, *words: str, input: str | None = None, code: int = 0) -> Result:
        """Run `belvedere --db … words`; the exit code must be as expected."""
        result = CliRunner().invoke(cli, ["--db", str(self.path), *words], input=input, prog_name="belvedere")
        assert result.exit_code == code, f"exit code {result.exit_code}: {result.output}{result.stderr}"
        return result

    def json(self, *words: str, **options: Any) -> list[Any]:
        """Run with --json; the documents printed."""
        return [json.loads(line) for line in self.run("--json", *words, **options).stdout.splitlines()]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Tables and a view, without rows."""
    path = tmp_path / "shop.bv"
    db = belvedere.open(path)
    for statement in SCHEMA:
        db.execute(statement)
    db.close()
    return Shop(path)


@pytest.fixture
def filled(shop: Shop) -> Shop:
    """The shop with three orders."""
    db = belvedere.open(shop.path)
    rows = [(1, 7, "9.50"), (2, 7, "0.50"), (3, 8, "1.00")]
    token = db.put("orders", [{"id": i, "customer": c, "total": t} for i, c, t in rows])
    db.wait(token)
    db.close()
    return shop
