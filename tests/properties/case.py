"""One generated case: tables, views and writes from a seed; how it is run, checked, and kept as a `.test` file."""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import duckdb
import pyarrow as pa

import belvedere
from belvedere.embedded.database import Database
from tests.oracle.clock import clock
from tests.oracle.duck import Oracle, arrow_of
from tests.oracle.model import Base
from tests.oracle.values import same_bag, table_rows
from tests.properties.histories import Histories, Write
from tests.properties.queries import Queries
from tests.properties.schemas import BaseTable, Relation, tables
from tests.properties.sql import Sql

EPOCHS = 6


@dataclass(frozen=True)
class View:
    """CREATE MATERIALIZED VIEW, or CREATE OR REPLACE where the name exists."""

    name: str
    sql: Sql


@dataclass(frozen=True)
class Drop:
    """DROP MATERIALIZED VIEW."""

    name: str


@dataclass(frozen=True)
class Check:
    """The end of an epoch: every view is compared."""


@dataclass(frozen=True)
class Reopen:
    """The database is closed and opened again, perhaps after a snapshot."""

    snapshot: bool


Step = View | Drop | Write | Check | Reopen


@dataclass(frozen=True)
class Case:
    """Everything that happens, in order."""

    tables: tuple[BaseTable, ...]
    steps: tuple[Step, ...]


class Mismatch(AssertionError):
    """A view that is not what its query gives."""


def generate(seed: int) -> Case:
    """The case of a seed."""
    rng = Random(seed)
    base = tables(rng)
    relations: list[Relation] = list(base)
    history = Histories(rng, base)
    steps: list[Step] = []
    planned = rng.choice((2, 3, 4))
    early = rng.random() < 0.5  # whether the first view sees the rows arrive or finds them
    if not early:
        steps += history.load()
    views: list[Relation] = []
    for epoch in range(EPOCHS):
        while len(views) < planned and (not views or rng.random() < 0.6):
            query = Queries(rng, relations).query()
            views.append(Relation(f"v{len(views)}", query.columns))
            relations.append(views[-1])
            steps.append(View(views[-1].name, query.sql))
        if early and epoch == 0:
            steps += history.load()
        if rng.random() < 0.05:
            chosen = rng.randrange(len(views))
            below = [*base, *views[:chosen]]
            query = Queries(rng, below).query([c.type for c in views[chosen].columns])
            steps.append(View(views[chosen].name, query.sql))
        if rng.random() < 0.02:
            steps.append(Reopen(rng.random() < 0.5))
        steps += history.epoch()
        steps.append(Check())
    return Case(tuple(base), tuple(steps))


def run(case: Case, oracle: Oracle) -> int:
    """Carry a case out; the number of comparisons made. Raises `Mismatch`, or what the database raised."""
    durable = any(isinstance(s, Reopen) for s in case.steps)
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        path = directory if durable else None
        return _Run(case, oracle, stack, path).all()


class _Run:
    """One database with the model and the oracle beside it."""

    def __init__(self, case: Case, oracle: Oracle, stack: contextlib.ExitStack, path: str | None) -> None:
        self.case, self.oracle, self.stack, self.path = case, oracle, stack, path
        self.clock = clock()
        self.model = Base()
        self.views: dict[str, Sql] = {}
        self.db = self._open()

    def _open(self) -> Database:
        return self.stack.enter_context(belvedere.open(self.path, clock=self.clock, sync=False))

    def all(self) -> int:
        checks = 0
        for table in self.case.tables:
            self.db.execute(table.ddl())
            self.model.create(table.ddl())
        _load(self.oracle, self.model)
        token = None
        for step in self.case.steps:
            if isinstance(step, View):
                self._define(step)
            elif isinstance(step, Drop):
                self.db.execute(f"DROP MATERIALIZED VIEW {step.name}")
                del self.views[step.name]
            elif isinstance(step, Write):
                token = write(self.db, step)
                self.model.write(step.table, step.rows, step.deletes, step.ts)
            elif isinstance(step, Reopen):
                if step.snapshot:
                    self.db.checkpoint()
                self.db.close()
                self.db = self._open()
            else:
                if token is not None:
                    self.db.wait(token)
                _load(self.oracle, self.model)
                for name in self.views:
                    checks += 1
                    _compare(name, table_rows(self.db.scan(name)), self.oracle)
        return checks

    def _define(self, step: View) -> None:
        word = "OR REPLACE " if step.name in self.views else ""
        self.views[step.name] = step.sql
        # All of them again: DuckDB refuses a view whose inputs got other types below it.
        for name, sql in self.views.items():
            self.oracle.connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {sql.duck}")
        self.db.execute(f"CREATE {word}MATERIALIZED VIEW {step.name} AS {step.sql.spark}")


def write(db: Database, step: Write) -> Any:
    """The call that a write stands for."""
    if not any(step.deletes):
        return db.put(step.table, list(step.rows), ts=step.ts)
    if all(step.deletes):
        keys = [tuple(r.values()) if len(r) > 1 else next(iter(r.values())) for r in step.rows]
        return db.delete(step.table, keys, ts=step.ts)
    return db.write(step.table, list(step.rows), deletes=list(step.deletes))


def _load(oracle: Oracle, model: Base) -> None:
    """Show the model's rows to DuckDB; timestamps without a zone, so that it needs no calendar of zones."""
    for table in model.tables.values():
        rows = arrow_of(table)
        fields = [
            pa.field(f.name, pa.timestamp("us") if pa.types.is_timestamp(f.type) else f.type) for f in rows.schema
        ]
        oracle.show(table.name, rows.cast(pa.schema(fields)))


def _compare(name: str, found: Sequence[tuple[Any, ...]], oracle: Oracle) -> None:
    difference = same_bag(found, oracle.rows(f"SELECT * FROM {name}"))
    if difference is not None:
        raise Mismatch(f"view {name}: {difference}")


class NotComputable(Exception):
    """A case whose query DuckDB itself refuses; the generator should not have made it."""


def attempt(case: Case, oracle: Oracle) -> BaseException | None:
    """What goes wrong with a case, if anything."""
    try:
        run(case, oracle)
    except duckdb.Error as error:
        raise NotComputable(str(error)) from error
    except Exception as error:  # whatever the database raises is a finding
        return error
    return None


def to_test_file(case: Case, title: str) -> str:
    """The case as a `.test` file (checks are those after every step)."""
    blocks = [f"# {title}"]
    blocks += [f"statement\n{t.ddl()}" for t in case.tables]
    known: set[str] = set()
    for step in case.steps:
        if isinstance(step, View):
            word = "OR REPLACE " if step.name in known else ""
            known.add(step.name)
            blocks.append(f"statement\nCREATE {word}MATERIALIZED VIEW {step.name} AS\n{step.sql.spark}")
        elif isinstance(step, Drop):
            blocks.append(f"statement\nDROP MATERIALIZED VIEW {step.name}")
        elif isinstance(step, Write):
            blocks.append(_write_block(step))
    return "\n\n".join(blocks) + "\n"


def _write_block(step: Write) -> str:
    stamp = "" if step.ts is None else f" ts={step.ts}"
    rows = [json.dumps(r, default=_json, ensure_ascii=False) for r in (_finite(r) for r in step.rows)]
    if not any(step.deletes):
        return "\n".join([f"put {step.table}{stamp}", *rows])
    if all(step.deletes):
        return "\n".join([f"delete {step.table}{stamp}", *rows])
    marked = [f"{'-' if d else '+'} {r}" for r, d in zip(rows, step.deletes, strict=True)]
    return "\n".join([f"write {step.table}", *marked])


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    return {k: "NaN" if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}


def _json(value: Any) -> str:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ")
    if isinstance(value, (date, Decimal)):
        return str(value)
    raise TypeError(type(value).__name__)
