"""Known bugs of loads and reloads: each switches off one rule that keeps DELTA right."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from belvedere.backend.hbase import loading, reloading
from belvedere.backend.hbase.followed import FollowedRegion
from belvedere.backend.hbase.images import Comparison
from belvedere.backend.hbase.loading import Loader
from belvedere.backend.hbase.reloading import Reloader
from belvedere.engine.delta import CellChange, Changes
from belvedere.engine.state.cell_table import CellTable
from belvedere.model.change_codec import WrittenRow

Patch = tuple[Any, str, Any]
BUGS: dict[str, Callable[[], list[Patch]]] = {}


@contextlib.contextmanager
def switched_on(name: str | None) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for target, attribute, replacement in BUGS[name]() if name is not None else ():
            stack.enter_context(mock.patch.object(target, attribute, replacement))
        yield


def _bug(name: str) -> Callable[[Callable[[], list[Patch]]], Callable[[], list[Patch]]]:
    def register(make: Callable[[], list[Patch]]) -> Callable[[], list[Patch]]:
        BUGS[name] = make
        return make

    return register


@_bug("a correction without its image")
def _no_image() -> list[Patch]:
    """It takes away whatever is there: what the log brought since is lost."""

    def first(self: CellTable, changes: Changes) -> Changes:
        if changes.kind is None or not (changes.kind == CellChange.FORGOTTEN).any():
            return changes
        at = np.flatnonzero(changes.kind == CellChange.FORGOTTEN)
        known = [at_one for at_one in at.tolist() if not len(self.missing(changes.take(np.array([at_one]))))]
        others = np.flatnonzero(changes.kind != CellChange.FORGOTTEN)
        return changes.take(np.concatenate([np.array(known, np.int64), others]))

    return [(CellTable, "_corrections_first", first)]


@_bug("a correction in the order of its coming")
def _in_order() -> list[Patch]:
    """It takes away what the log has brought beside it."""
    first = CellTable._corrections_first

    def late(self: CellTable, changes: Changes) -> Changes:
        found = first(self, changes)
        if found.kind is None or not (found.kind == CellChange.FORGOTTEN).any():
            return found
        at = found.kind == CellChange.FORGOTTEN
        scanned = found.kind == CellChange.SCANNED
        order = np.concatenate([np.flatnonzero(~at & ~scanned), np.flatnonzero(at), np.flatnonzero(scanned)])
        return found.take(order)

    return [(CellTable, "_corrections_first", late)]


@_bug("a correction by a timestamp")
def _by_timestamp() -> list[Patch]:
    """A lost delete is made up for by a delete with the time of now."""
    forgotten = Comparison.forgotten

    def deleted(self: Comparison, only: np.ndarray, known: Any) -> WrittenRow:
        found = forgotten(self, only, known)
        count = len(found.changes)
        kind, ts = np.full(count, CellChange.DELETE, np.uint8), np.full(count, 1500, np.int64)
        everything = [c.name for c in self.definition.columns]
        changes = replace(found.changes, kind=kind, ts=ts).take(np.arange(count))
        written = WrittenRow(found.names, changes).resolve(self.definition)
        present = tuple(None for _ in everything)
        return WrittenRow.of(self.definition, replace(written, present=present))

    return [(Comparison, "forgotten", deleted)]


@_bug("corrected rows are not looked at again")
def _no_second_round() -> list[Patch]:
    correct = Reloader._correct

    def once(self: Reloader, *given: Any) -> Any:
        with mock.patch.object(reloading, "_ROUNDS", 1):
            return replace(correct(self, *given), undecided=0)

    return [(Reloader, "_correct", once)]


@_bug("the place is written down before the rows are durable")
def _place_first() -> list[Patch]:
    """Who is killed between the two leaves a hole."""
    push = Loader.push

    def late(self: Loader, attempt: Any, seq: int, rows: WrittenRow) -> None:
        ranges = [one for one in self._loads.ranges() if one.attempt == attempt.encoded]
        for one in ranges:
            last = rows.changes.columns[0].to_arrow().to_pylist()[-1]
            self._loads.put(replace(one, after=int(last).to_bytes(8, "big").hex()))
        push(self, attempt, seq, rows)

    return [(Loader, "push", late)]


@_bug("attempts share a name")
def _one_name() -> list[Patch]:
    """The filter takes the rows of a second one for repetitions of the first's."""

    def named(table: str) -> Any:
        return FollowedRegion(table, "load-again", frozenset(), 0)

    return [(loading, "new_attempt", named), (reloading, "new_attempt", named)]


@_bug("scanned cells count as written")
def _scan_is_put() -> list[Patch]:
    """At equal timestamps they beat those of the log."""
    changes = Loader.changes

    def put(decoder: Any, cells: Any) -> WrittenRow:
        found = changes(decoder, cells)
        kind = found.changes.kind
        assert kind is not None
        as_put = np.where(kind == CellChange.SCANNED, np.uint8(CellChange.PUT), kind)
        return WrittenRow(found.names, replace(found.changes, kind=as_put))

    return [(Loader, "changes", staticmethod(put))]


@_bug("deletes that stand are not read")
def _no_deletes() -> list[Patch]:
    """A plain scan: what a delete masks comes from the log later, and lives."""
    changes = Loader.changes

    def plain(decoder: Any, cells: Any) -> WrittenRow:
        found = changes(decoder, cells)
        assert found.changes.kind is not None
        return found.take(np.flatnonzero(found.changes.kind == CellChange.SCANNED))

    return [(Loader, "changes", staticmethod(plain))]


@_bug("a reload does not wait for the log")
def _no_fence() -> list[Patch]:
    """What was lost before the log has told of it comes when nobody looks any more."""
    return [(Reloader, "_everything_before", Reloader._catch_up)]
