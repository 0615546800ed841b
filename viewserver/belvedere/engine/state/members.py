"""The rows of groups: a vector of row slots per group slot, with removal in constant time.

Every row knows its position in its group's vector, so removing it moves the last member into its place. A row is in at
most one group of one `Members`.
"""

from __future__ import annotations

import numpy as np

from belvedere.engine.state.jit import plain
from belvedere.engine.state.kernels import members as k
from belvedere.engine.state.memory import Buffer

Cursor = tuple[int, int]
_NO_STAMP = np.empty(0, np.int32)
_CLASSES = 32


class Members:
    """Group slot -> row slots."""

    def __init__(self) -> None:
        self._heads = Buffer(np.int64, 3)
        self._pool = Buffer(np.int32)
        self._position = Buffer(np.int32)
        self._free = np.zeros(_CLASSES, np.int64)
        self._ctl = np.zeros(2, np.int64)
        self._groups = self._rows = 0

    def __len__(self) -> int:
        """Members of all groups."""
        return int(self._ctl[1])

    def add(self, groups: np.ndarray, rows: np.ndarray) -> None:
        """Put each row into its group; a group may be named several times."""
        if not len(groups):
            return
        groups, rows = _int32(groups), _int32(rows)
        self._groups = max(self._groups, int(groups.max()) + 1)
        self._rows = max(self._rows, int(rows.max()) + 1)
        self._heads.reserve(self._groups)
        self._position.reserve(self._rows)
        heads, position = self._heads.array, self._position.array
        done = 0
        while done < len(groups):
            self._pool.reserve(int(self._ctl[0]) + 8)
            done += int(
                k.add_members(heads, self._pool.array, self._free, self._ctl, position, groups[done:], rows[done:])
            )
            if done < len(groups):
                block = 8 << max(0, int(heads[groups[done], k.CLASS]))
                self._pool.reserve(int(self._ctl[0]) + max(block, 4 * (len(groups) - done)))

    def remove(self, groups: np.ndarray, rows: np.ndarray) -> None:
        """Take each row out of the group it is in."""
        if len(groups):
            k.remove_members(
                self._heads.array, self._pool.array, self._free, self._ctl, self._position.array,
                _int32(groups), _int32(rows),
            )  # fmt: skip

    def sizes(self, groups: np.ndarray) -> np.ndarray:
        """Number of members (int64) of each group; 0 for -1 and for groups never seen."""
        out = np.empty(len(groups), np.int64)
        k.size_members(self._heads.array, _int32(groups), out)
        return out

    def probe(
        self, groups: np.ndarray, stamp: np.ndarray | None, epoch_mark: int, limit: int, cursor: Cursor | None
    ) -> tuple[np.ndarray, np.ndarray, Cursor | None]:
        """Pairs (position in `groups`, row slot) for every member of every group (-1: none), skipping rows whose stamp
        (int32 by row slot) equals `epoch_mark`. At most `limit` pairs; pass the returned cursor to go on, None =
        done."""
        groups = _int32(groups)
        first, inner = cursor or (0, 0)
        bound = limit
        if cursor is None:
            bound = min(limit, int(self.sizes(groups).sum()))
        which, rows = np.empty(bound, np.int64), np.empty(bound, np.int32)
        marks = _NO_STAMP if stamp is None else _int32(stamp)
        count, first, inner = k.probe_members(
            self._heads.array, self._pool.array, groups, marks, epoch_mark, first, inner, which, rows
        )
        following = None if first >= len(groups) else (int(first), int(inner))
        return which[:count], rows[:count], following

    def nbytes(self) -> int:
        """Memory in use."""
        pool = self._pool.nbytes(int(self._ctl[0]))
        return self._heads.nbytes(self._groups) + pool + self._position.nbytes(self._rows)

    def dump(self) -> dict[str, np.ndarray]:
        """Arrays from which `load` makes equal vectors, in equal order."""
        return {
            "heads": self._heads.array[: self._groups].copy(),
            "pool": self._pool.array[: self._ctl[0]].copy(),
            "position": self._position.array[: self._rows].copy(),
            "free": self._free.copy(),
            "ctl": self._ctl.copy(),
        }

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray]) -> Members:
        """What was dumped."""
        members = cls()
        members._groups, members._rows = len(arrays["heads"]), len(arrays["position"])
        for buffer, name in ((members._heads, "heads"), (members._pool, "pool"), (members._position, "position")):
            buffer.reserve(len(arrays[name]))
            buffer.array[: len(arrays[name])] = arrays[name]
        members._free[:] = arrays["free"]
        members._ctl[:] = arrays["ctl"]
        return members


def _int32(array: np.ndarray) -> np.ndarray:
    return plain(array) if array.dtype == np.int32 else np.ascontiguousarray(array, np.int32)
