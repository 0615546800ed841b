"""What attempts wrote of a view in epochs in which it has failed: taken back before it hides the last good rows.

    view failed at e ──rows at e and later are void, stale reads look below e──▶ the horizon is to reach e ──▶
    each void row becomes what it was below e ──▶ collected, stale reads look at the newest version

Collection keeps the newest version of a row that is not above the horizon. Where that is a void one, the last good row
would go. So before the store collects up to *e*, the leader writes the row below *e* in the void one's place: same id,
same version. That is long after the last late writer, and to do it twice is to do it once.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere import errors
from belvedere.backend.seam import RowShape, Store, TableWrite
from belvedere.cluster.catalog.names import FailedVersion, failed_versions
from belvedere.cluster.transport.calls import NEWEST
from belvedere.model.describe import ViewShape
from belvedere.model.keys import key_codec
from belvedere.model.stored_rows import view_rows
from belvedere.protocol.messages import Epoch


class VoidRows:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._done: set[str] = set()

    def take_back(self, document: bytes, horizon: Epoch) -> int:
        """Of all views that the catalog knows to have failed at or below the horizon; how many rows."""
        count = 0
        for one in failed_versions(document):
            table = one.view.rows_table
            if one.failure.served and one.failure.epoch <= horizon and table not in self._done:
                count += self._of(one)
                self._done.add(table)
        return count

    def _of(self, one: FailedVersion) -> int:
        store, table, shape, epoch = self._store, one.view.rows_table, one.view.shape, one.failure.epoch
        count = 0
        for version, ids in list(store.changed(table, epoch - 1, NEWEST)):
            try:
                good = store.read(table, ids, epoch)
            except errors.BelowHorizon:
                return count  # it was collected, so somebody has done this before
            void = store.read(table, ids, version + 1)
            keyed = pc.is_valid(good).to_numpy(False) | pc.is_valid(void).to_numpy(False)
            if keyed.any():
                ids, good, void = ids[keyed], good.filter(pa.array(keyed)), void.filter(pa.array(keyed))
                keys = _keys(shape, ids, pc.coalesce(good, void))
                before = good if store.previous_images else None
                rows = RowShape(shape.schema, shape.key)
                store.write(version, [TableWrite(table, ids, good, True, keys, shape=rows, before=before)])
            count += int(keyed.sum())
        return count


def _keys(shape: ViewShape, ids: np.ndarray, values: pa.BinaryArray) -> pa.BinaryArray:
    rows = view_rows(shape.schema, ids, values)
    return key_codec(shape.schema, shape.key).encode([rows.columns[i].to_arrow() for i in shape.key], len(ids))
