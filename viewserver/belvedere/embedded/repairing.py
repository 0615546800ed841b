"""`repair`, and `verify` of what lies behind views: the part of a database that a user calls."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from belvedere.embedded.repairs import Damage, Ranges, Repairs
from belvedere.embedded.statements import Statements
from belvedere.errors import CatalogError
from belvedere.model import order
from belvedere.model.keys import KeyCodec
from belvedere.model.ranges import KeyRange
from belvedere.model.repair import RepairReport
from belvedere.sql.catalog import TableDef

if TYPE_CHECKING:
    from belvedere.model.verify import Report

T = TypeVar("T")
ENGINE = "belvedere"


class Repairing(Statements):
    """A database that can write, and so mend itself."""

    @abstractmethod
    def _between_epochs(self, action: Callable[[Repairs], T]) -> T:
        """Call it in the engine's thread, between two epochs."""

    @abstractmethod
    def _carry_out_repair(self, damage: Damage) -> RepairReport:
        """Through the log."""

    # ------------------------------------------------------------------ verification

    def verify(self, view: str | None = None, *, state: bool = False, base: bool = False) -> Report:
        """Recompute a view (or all) from base rows with DuckDB and compare, at one epoch.

        `state`: compare the state behind it with what a fresh engine makes of the base rows; views wait meanwhile.
        `base`: compare the base rows in memory, of a table or of those that a view reads, with snapshot and log.
        """
        from belvedere.model import verify as verification

        if state and base:
            raise CatalogError("verify compares the state behind views or base rows, one at a time")
        if not state and not base:
            return super().verify(view)
        catalog = self.catalog
        relation = None if view is None else catalog.relation(view)
        if base:
            reports = [self._verify_base(name) for name in self._tables_of(relation)]
        elif isinstance(relation, TableDef):
            raise CatalogError(
                f"{relation.name!r} is a base table: it has no state but its rows, which `base` verifies"
            )
        else:
            names = list(catalog.views) if relation is None else [relation.name]
            reports = [self._verify_state(name) for name in names]
        return reports[0] if len(reports) == 1 else verification.together(reports, self.epoch)

    def _tables_of(self, relation: Any) -> list[str]:
        from belvedere.model.verify import below

        tables = self.catalog.tables
        if relation is None:
            return list(tables)
        if isinstance(relation, TableDef):
            return [relation.name]
        return sorted(below(self.catalog, [relation]) & tables.keys())

    def _verify_state(self, view: str) -> Report:
        from belvedere.model import verify, verify_tables

        started = time.monotonic()
        epoch, checks = self._between_epochs(lambda repairs: repairs.check_state(view))
        seconds = time.monotonic() - started
        return verify_tables.report_of(view, epoch, checks, subject=verify.STATE, engine=ENGINE, seconds=seconds)

    def _verify_base(self, table: str) -> Report:
        from belvedere.model import verify, verify_tables

        started = time.monotonic()
        epoch, check = self._between_epochs(lambda repairs: repairs.check_base(table))
        seconds = time.monotonic() - started
        problem = "" if check is not None else "a database in memory has its rows nowhere else"
        return verify_tables.report_of(
            table, epoch, [] if check is None else [check], subject=verify.TABLE, engine=ENGINE, seconds=seconds,
            problem=problem,
        )  # fmt: skip

    # ------------------------------------------------------------------ repair

    def repair(
        self,
        view: str,
        *,
        keys: Sequence[Any] | None = None,
        prefix: Any = None,
        start: Any = None,
        stop: Any = None,
        everything: bool = False,
        dry_run: bool = False,
    ) -> RepairReport:
        """Put right what is wrong with a view, the state behind it and what is made of it; of a base table, its rows in
        memory. Views wait until it is done, writers do not.

        `keys`, `prefix`, `start` and `stop` choose rows of the view: these alone are mended in it. `everything`: make
        the view, and what reads it, anew without looking first. `dry_run`: only tell what would be mended.
        """
        relation = self.catalog.relation(view)
        self._view(relation.name) if not isinstance(relation, TableDef) else None
        chosen = [one for one in (keys, prefix, start, stop) if one is not None]
        if chosen and (everything or isinstance(relation, TableDef)):
            what = "everything" if everything else f"{relation.name!r}, a base table"
            raise CatalogError(f"a repair of {what} is not of some keys")
        ranges = self._ranges(relation.name, keys, prefix, start, stop) if chosen else None
        if everything and not dry_run:
            damage = self._between_epochs(lambda repairs: repairs.everything(relation.name))
        else:
            damage = self._between_epochs(lambda repairs: repairs.look(relation.name, ranges))
        looked = damage.report(relation.name, dry_run=dry_run)
        if dry_run or not (looked.found or everything):
            return looked
        done = self._carry_out_repair(damage)
        if everything:
            looked = replace(looked, rebuilt=tuple(damage.views), tables=done.tables, rows=done.rows)
        report = replace(looked, epoch=done.epoch, mended=max(looked.found, done.found), problem=done.problem)
        return report if chosen or isinstance(relation, TableDef) else self._checked(report)

    def _checked(self, report: RepairReport) -> RepairReport:
        """What DuckDB says of the view now."""
        after = super().verify(report.view)
        if not after.differences:
            return report
        problem = f"a recomputation by DuckDB still differs in {after.differences:,} rows"
        return replace(report, remaining=after.differences, problem=report.problem or problem)

    def _ranges(self, view: str, keys: Sequence[Any] | None, prefix: Any, start: Any, stop: Any) -> Ranges:
        if (keys is not None) + (prefix is not None) + (start is not None or stop is not None) > 1:
            raise CatalogError("a repair is of keys, of a prefix, or of keys from one up to another")
        table = self._view(view)
        codec, owner = table.codec, f"view {view!r}"
        if keys is not None:
            return tuple(_one_key(codec, key, owner) for key in keys)
        if prefix is not None:
            values = prefix if isinstance(prefix, tuple | list) else (prefix,)
            return (order.prefix_range(codec, values, None, False, owner),)
        return (order.key_range(codec, start, stop, None, False, owner),)


def _one_key(codec: KeyCodec, key: Any, owner: str) -> KeyRange:
    values = order.key_values(codec.columns, key, owner)
    return order.prefix_range(codec, values, None, False, owner)
