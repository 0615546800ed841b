"""Which epochs include writes that are known by their rows only (`protocol.row_marks`): as DELTA says."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Protocol

import numpy as np
import pyarrow as pa

from belvedere.errors import BelowHorizon
from belvedere.model.cell_times import is_reached
from belvedere.plan.table_names import delta_table
from belvedere.protocol.exactly_once import Seq, SourceId
from belvedere.protocol.messages import Epoch
from belvedere.protocol.row_marks import RowMark

_REMEMBERED = 4096


class Readable(Protocol):
    def read(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray: ...


class WrittenRows:
    """What is included stays so: it is remembered. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: OrderedDict[tuple[SourceId, Seq], Epoch] = OrderedDict()

    def include(self, epoch: Epoch, writes: Iterable[tuple[SourceId, Seq]], store: Readable) -> bool:
        """Whether the epoch has all of those writes that are known by rows."""
        asked: dict[str, list[tuple[RowMark, tuple[SourceId, Seq]]]] = {}
        for write in writes:
            mark = RowMark.parse(write[0])
            if mark is not None and not self._known(write, epoch):
                asked.setdefault(mark.table, []).append((mark, write))
        return all(self._read(epoch, table, marks, store) for table, marks in asked.items())

    def _known(self, write: tuple[SourceId, Seq], epoch: Epoch) -> bool:
        with self._lock:
            since = self._since.get(write)
        return since is not None and since <= epoch

    def _read(
        self, epoch: Epoch, table: str, marks: list[tuple[RowMark, tuple[SourceId, Seq]]], store: Readable
    ) -> bool:
        ids = np.array([mark.id for mark, _ in marks], np.uint64).reshape(-1, 2)
        try:
            rows = store.read(delta_table(table), ids, epoch + 1).to_pylist()
        except BelowHorizon:  # written so often since that nobody knows: a newer epoch will tell
            return False
        reached = [
            is_reached(row, mark.columns, write[1], mark.keys) for row, (mark, write) in zip(rows, marks, strict=True)
        ]
        with self._lock:
            for (_, write), is_there in zip(marks, reached, strict=True):
                if is_there:
                    self._since[write] = min(epoch, self._since.get(write, epoch))
            while len(self._since) > _REMEMBERED:
                self._since.popitem(last=False)
        return all(reached)
