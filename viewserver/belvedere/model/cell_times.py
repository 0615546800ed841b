"""Up to which timestamp the cells of a row are known, from DELTA's stored row: for clients, without the engine.

The form is that of `engine.state.cell_table` (`_pack`, and the words of `kernels.cells`): the row's width, its values,
its timestamp, when it ended, and a record of its cells if they differ.
"""

from __future__ import annotations

import numpy as np

from belvedere.errors import Damaged

_LONG = 255
_PARTS = 5
_VERSIONS, _HEAD = 1, 2
NEVER = -(1 << 63)


def is_reached(stored: bytes | None, columns: int, timestamp: int, keys: int = 1) -> bool:
    """Whether each of these columns (bits; none: at least one column) has a put or a delete at this timestamp or a
    later one. `keys`: columns of the key, which the bits leave out."""
    if stored is None:
        return False
    parts = _split(stored)
    width, row, record = int.from_bytes(parts[0], "little"), int.from_bytes(parts[2], "little", signed=True), parts[4]
    known = _of_cells(record) if record else None
    if not columns:
        return (row if known is None else max(known, default=NEVER)) >= timestamp
    wanted = [at for at in range(columns.bit_length()) if columns >> at & 1]
    if known is None:
        return row >= timestamp and wanted[-1] < width - keys
    return all(at < len(known) and known[at] >= timestamp for at in wanted)


def _of_cells(record: bytes) -> list[int]:
    words = np.frombuffer(record, np.int64)
    versions = int(words[_VERSIONS])
    cells = (len(words) - _HEAD) // 2 - versions
    times: list[int] = words[_HEAD : _HEAD + 2 * cells].reshape(cells, 2).max(axis=1).tolist()
    for mark, moment in words[_HEAD + 2 * cells :].reshape(versions, 2).tolist():
        times[mark >> 1] = max(times[mark >> 1], moment)
    return times


def _split(stored: bytes) -> list[bytes]:
    parts, at = [], 0
    for _ in range(_PARTS):
        if at >= len(stored):
            raise Damaged(f"a stored base row of {len(stored)} bytes ends before its {_PARTS} parts")
        length = stored[at]
        at += 1
        if length == _LONG:
            length = int.from_bytes(stored[at : at + 4], "little")
            at += 4
        parts.append(stored[at : at + length])
        at += length
    return parts
