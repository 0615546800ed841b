"""Reports of what is compared by id and not by key: tables of state, and base tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np

from belvedere.model.verify import KINDS, SHOWN, Report, Row


class Check(Protocol):
    """What a comparison of one table found; ids are uint64[n, 2]."""

    @property
    def table(self) -> str: ...
    @property
    def rows(self) -> int: ...
    @property
    def missing(self) -> np.ndarray: ...
    @property
    def extra(self) -> np.ndarray: ...
    @property
    def different(self) -> np.ndarray: ...


def report_of(
    name: str, epoch: int, checks: Iterable[Check], *, subject: str, engine: str, seconds: float, problem: str = ""
) -> Report:
    """`problem`: why there is nothing to compare, if so. Examples name table and id."""
    all_checks = list(checks)
    counts = {kind: sum(len(getattr(c, kind)) for c in all_checks) for kind in KINDS}
    shown = {kind: tuple(_examples(all_checks, kind))[:SHOWN] for kind in KINDS}
    wrong = sum(counts.values())
    return Report(
        name, epoch, not wrong, sum(c.rows for c in all_checks), missing=shown["missing"],
        extra=shown["extra"], differences=wrong, problem=problem or None, compared=not problem,
        different=tuple({"found": row, "expected": row} for row in shown["different"]), counts=counts, engine=engine,
        subject=subject, seconds=seconds,
    )  # fmt: skip


def _examples(checks: Iterable[Check], kind: str) -> Iterator[Row]:
    for check in checks:
        for id in getattr(check, kind)[:SHOWN]:
            yield {"table": check.table, "id": id.tobytes().hex()}
