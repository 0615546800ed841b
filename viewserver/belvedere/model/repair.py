"""What `repair` tells, the same for every database: which rows were not what they have to be, and what became of them.

A repair replaces bytes. It compares what is stored of a view, of the state behind it and of everything made from it
with what the base rows make of them at one epoch, and puts the right rows in the place of the wrong ones, in an epoch
like any other. A row that has changed in between is left as it is, and looked at again at a newer epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_TRIES = 3
"""So often a row that changes again and again is tried; then the views made of it are rebuilt aside."""

MISSING, EXTRA, DIFFERENT = "missing", "extra", "different"


@dataclass(frozen=True)
class DamagedRow:
    """A stored row that is not what the base rows make. `table`: of the store; `id`: 32 hexadecimal digits."""

    table: str
    id: str
    problem: str
    """missing, extra or different"""


@dataclass(frozen=True)
class RepairReport:
    """`mended`: rows that were wrong and are right since `epoch`. `tried_again`: how often a row had changed before it
    could be replaced, and was looked at again. `rebuilt`: views that were made anew, aside. `remaining`: rows that
    are still not right, with `problem` why. In a dry run nothing is changed, and `rows` has all that would be."""

    view: str
    epoch: int
    """The one in which the last row was replaced; nothing was: the one that was looked at."""
    dry_run: bool = False
    mended: int = 0
    tried_again: int = 0
    rebuilt: tuple[str, ...] = ()
    remaining: int = 0
    problem: str = ""
    tables: Mapping[str, int] = field(default_factory=dict)
    """Wrong rows that were found, by table of the store."""
    rows: tuple[DamagedRow, ...] = ()
    """Those that were found: in a dry run all of them, else examples."""

    @property
    def found(self) -> int:
        return sum(self.tables.values())

    @property
    def ok(self) -> bool:
        """Whether everything is as it has to be now."""
        return not self.remaining and not self.problem and not (self.dry_run and self.found)

    def __str__(self) -> str:
        if self.dry_run:
            if not self.found:
                return f"view {self.view}: nothing to repair at epoch {self.epoch}"
            return f"view {self.view}: {self.found} rows would be replaced, as of epoch {self.epoch}"
        done = [f"{self.mended} rows mended"]
        if self.tried_again:
            done.append(f"{self.tried_again} tried again")
        if self.rebuilt:
            done.append(f"rebuilt: {', '.join(self.rebuilt)}")
        if self.remaining:
            done.append(f"{self.remaining} rows are not right yet")
        told = f"view {self.view}: {', '.join(done)} (epoch {self.epoch})"
        return f"{told}; {self.problem}" if self.problem else told

    def to_dict(self) -> dict[str, Any]:
        return {
            "view": self.view,
            "epoch": self.epoch,
            "ok": self.ok,
            "dry_run": self.dry_run,
            "found": self.found,
            "mended": self.mended,
            "tried_again": self.tried_again,
            "rebuilt": list(self.rebuilt),
            "remaining": self.remaining,
            "problem": self.problem,
            "tables": dict(self.tables),
            "rows": [{"table": row.table, "id": row.id, "problem": row.problem} for row in self.rows],
        }
