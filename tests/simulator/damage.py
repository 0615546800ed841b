"""The store of a history in which rows may be damaged."""

from __future__ import annotations

from typing import Any

from belvedere.backend.memory import MemoryStore
from belvedere.engine.exchange import TableWrite
from belvedere.errors import Contradiction


class DamagedMemory(MemoryStore):
    """Whoever changes a row that was damaged cannot know what the store has of it."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.planted: dict[tuple[str, bytes], int] = {}
        """The version that was damaged, by table and id."""
        self.lenient, self.lenient_until = False, 0
        """State is damaged, and whatever is made of it."""

    def may_differ(self, epoch: int) -> bool:
        """Whether who does this epoch again may write something else: one finds what was damaged, another remembers
        what it was."""
        return self.lenient or epoch <= self.lenient_until

    def is_planted(self, table: str, key: bytes, below: int) -> bool:
        """Whether what is seen of this row is what was damaged."""
        versions = self._tables.get(table, {}).get(key)
        seen = None if versions is None else versions.epoch(below)
        planted = self.planted.get((table, key))
        return planted is not None and (
            not seen or seen == planted
        )  # not there: it was a tombstone, which is collected

    def _check_rows(self, epoch: int, write: TableWrite) -> None:
        try:
            super()._check_rows(epoch, write)
        except Contradiction:
            ids, before = write.ids.tobytes(), [] if write.before is None else write.before.to_pylist()
            for number, value in enumerate(before):
                key = ids[16 * number : 16 * number + 16]
                versions = self._tables.get(write.table, {}).get(key)
                here = None if versions is None else versions.at(epoch)
                if here != value and not self.lenient and not self.is_planted(write.table, key, epoch):
                    raise
