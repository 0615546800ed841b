"""Every `.test` file through a database.

After each step, each view is compared with the rows that the file expects there and with a recomputation in DuckDB
over the naive model of the base tables, except for files in `spark_only.txt`, where DuckDB means something else than
Spark.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import belvedere
from belvedere.embedded.database import Database
from belvedere.errors import BelvedereError
from belvedere.model.token import Token
from tests.oracle.clock import clock
from tests.oracle.duck import Oracle
from tests.oracle.values import arrow_name, same_bag, table_rows, text
from tests.views.format import FILES, SPARK_ONLY, Block, State, changes, parse, render, steps
from tests.views.oracle import view_sql


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_file(path: Path) -> None:
    state, oracle = State(), Oracle()
    with belvedere.open(clock=clock()) as db:
        for step, checks in steps(parse(path)):
            where = f"{path.name}:{step.line}"
            _do(db, step, state, where)
            for check in checks:
                _check(db, check, f"{path.name}:{check.line}")
            if path.stem not in SPARK_ONLY:
                oracle.load(state.base)
                for name in db.catalog.views:
                    wanted = oracle.rows(view_sql(db.catalog, name))
                    difference = same_bag(table_rows(db.scan(name)), wanted)
                    assert difference is None, f"after {where}, view {name} is not what DuckDB computes: {difference}"


def _do(db: Database, step: Block, state: State, where: str) -> None:
    """Carry out a step on the database and on the model."""
    if step.kind == "error":
        _refused(db, step, where)
        return
    if step.kind == "statement":
        result = db.execute(step.sql)
        if isinstance(result, Token):
            db.wait(result)
    else:
        rows, deletes = changes(step, state.base)
        if step.kind == "put":
            token = db.put(step.target, rows, ts=step.ts)
        elif step.kind == "delete":
            keys = [tuple(row.values()) if len(row) > 1 else next(iter(row.values())) for row in rows]
            token = db.delete(step.target, keys, ts=step.ts)
        else:
            token = db.write(step.target, rows, deletes=deletes)
        db.wait(token)
    state.apply(step)


def _refused(db: Database, step: Block, where: str) -> None:
    split = step.body.index("----")
    sql, wanted = "\n".join(step.body[:split]), step.body[split + 1 :]
    with pytest.raises(BelvedereError) as caught:
        db.execute(sql)
    message = str(caught.value)
    for line in wanted:
        if line.startswith("at "):
            error = caught.value
            position = f"at {getattr(error, 'line', None)}:{getattr(error, 'column', None)}"
            assert position == line, f"{where}: {message!r}"
        else:
            assert line.lower() in message.lower(), f"{where}: {line!r} is not in {message!r}"


def _check(db: Database, check: Block, where: str) -> None:
    found = _quarantine(db, check) if check.kind == "quarantine" else _rows(db.scan(check.target), check)
    assert found == [check.body[0], *sorted(check.body[1:])], where


def _rows(table: pa.Table, check: Block) -> list[str]:
    """The rows of a view as an `expect` body; without types in the header if the file gives none."""
    names, types = table.column_names, [arrow_name(t) for t in table.schema.types]
    lines = render(names, types, table_rows(table))
    return lines if ":" in check.body[0] else [" | ".join(names), *lines[1:]]


def _quarantine(db: Database, check: Block) -> list[str]:
    """The quarantine of a view as a `quarantine` body: the columns that it names, and the reason without the place."""
    table = db.quarantine(check.target)
    names = check.body[0].split(" | ")
    types = [arrow_name(table.schema.field(n).type) for n in names]
    lines = []
    for row in table_rows(table.select(names)):
        values = [text(v, t) for v, t in zip(row[:-1], types[:-1], strict=True)]
        lines.append(" | ".join([*values, row[-1].split(": ")[-1]]))
    return [check.body[0], *sorted(lines)]
