"""The `.test` files of views over tables of a real HBase, with everything kept there: what each file expects, and what
DuckDB computes, after each step.

A CREATE TABLE becomes a table of HBase and a manifest that follows it; puts and deletes go to HBase. Files that say
what HBase cannot are left out, each with what that is. A few files run always, the rest in the long variant.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import happybase
import pytest

from belvedere import errors
from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.sql import parse_statement
from belvedere.sql import statements as st
from belvedere.sql.catalog import TableDef
from tests.backend.hbase.mapped import FAMILY, encoding, manifest_of
from tests.backend.hbase.real_pool import RealPool, real_pool
from tests.backend.hbase.server import unique
from tests.oracle.duck import Oracle
from tests.oracle.values import same_bag, table_rows
from tests.views.format import FILES, SPARK_ONLY, Block, State, changes, parse, steps
from tests.views.oracle import view_sql
from tests.views.test_views import _check, _refused

SAMPLE = ("join_three_tables", "agg_min_max", "put_after_delete", "quarantine_division", "ts_out_of_order")


class Unlike(Exception):
    """HBase means something else there, or has no such thing."""


@pytest.fixture(scope="module")
def pool(hbase: LocalHBase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPool]:
    with real_pool(hbase, tmp_path_factory.mktemp("pool"), distributors=1) as made:
        yield made


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[] if path.stem in SAMPLE else pytest.mark.long) for path in FILES],
    ids=lambda path: path.stem,
)
def test_file(hbase: LocalHBase, pool: RealPool, path: Path) -> None:
    player = Player(hbase, pool)
    try:
        player.play(path)
    except Unlike as reason:
        assert path.stem not in SAMPLE, reason
        pytest.skip(str(reason))
    finally:
        player.clear()


class Player:
    def __init__(self, hbase: LocalHBase, pool: RealPool) -> None:
        self.db: Any = pool.db
        self._connection = happybase.Connection(*hbase.thrift, timeout=60_000)
        self._made: list[str] = []
        self._stamps: set[int] = set()

    def play(self, path: Path) -> None:
        state, oracle = State(), Oracle()
        for step, checks in steps(parse(path)):
            where = f"{path.name}:{step.line}"
            token = self._do(step, state, where)
            self._look_at_rows(state)
            for check in checks:
                if token is not None:
                    self.db.wait(token)
                _check(self.db, check, f"{path.name}:{check.line}")
            if path.stem not in SPARK_ONLY:
                oracle.load(state.base)
                for name in self.db.catalog.views:
                    wanted = oracle.rows(view_sql(self.db.catalog, name))
                    difference = same_bag(table_rows(self.db.scan(name, after=token)), wanted)
                    assert difference is None, f"after {where}, view {name}: {difference}"

    def _do(self, step: Block, state: State, where: str) -> Any:
        token = None
        if step.kind == "error":
            if any("create table" in line.lower() for line in step.body):
                raise Unlike("a table that is refused: tables come from manifests here")
            _refused(self.db, step, where)
            return None
        if step.kind == "statement":
            statement = self._statement(step.sql)
            if isinstance(statement, st.CreateTable):
                self._create(statement.table)
            elif isinstance(statement, st.AddColumns):
                raise Unlike("columns are added with a manifest")
            else:
                token = self.db.execute(step.sql)
        else:
            rows, deletes = changes(step, state.base)
            table = self.db.catalog.tables[step.target]
            token = self._write(table, step, rows, deletes)
        state.apply(step)
        return token

    def _statement(self, sql: str) -> Any:
        with contextlib.suppress(errors.BelvedereError):
            return parse_statement(sql, self.db.catalog)
        return None

    def _write(self, table: TableDef, step: Block, rows: list[dict[str, Any]], deletes: list[bool]) -> Any:
        keys = [tuple(row[name] for name in table.key) for row in rows]
        if ("",) in keys:
            raise Unlike("a row with an empty key")
        if len({tuple(map(str, key)) for key in keys}) < len(keys):
            raise Unlike("a row twice in one call")
        if step.ts is not None and step.ts in self._stamps:
            raise Unlike("a timestamp for the second time: a session cannot tell such writes apart")
        self._stamps.add(step.ts or 0)
        if step.kind == "put":
            return self.db.put(step.target, rows, ts=step.ts)
        if step.kind == "delete":
            return self.db.delete(step.target, [key if len(key) > 1 else key[0] for key in keys], ts=step.ts)
        return self.db.write(step.target, rows, deletes=deletes)

    def _create(self, table: TableDef) -> None:
        if len(table.columns) == len(table.key):
            raise Unlike("a table that has a key only")
        name = unique("file")
        self._connection.create_table(name, {FAMILY: {"max_versions": 1}})
        self._made.append(name)
        parts = [encoding(table.columns[at]) for at in table.key_positions]
        if any(part in ("text", "raw") for part in parts[:-1]):
            raise Unlike("a key with a text before its last column: it would need a delimiter")
        try:
            self.db.apply_manifest(manifest_of(table, name))
        except errors.BelvedereError as error:
            raise Unlike(f"a table that cannot be mapped so: {error}") from error

    @staticmethod
    def _look_at_rows(state: State) -> None:
        for table in state.base.tables.values():
            for row in table.live():
                if all(value is None for name, value in zip(table.columns, row, strict=True) if name not in table.key):
                    raise Unlike("a row without any value: it has no cell")

    def clear(self) -> None:
        for name in reversed(list(self.db.catalog.views)):
            self.db.execute(f"DROP MATERIALIZED VIEW `{name}`")
        for name in list(self.db.catalog.tables):
            self.db.execute(f"DROP TABLE `{name}`")
        for name in self._made:
            self._connection.delete_table(name, disable=True)
        self._connection.close()
