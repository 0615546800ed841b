"""A store that is insisted on: whether the result is wanted is asked before everything that others could see."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from belvedere.backend import seam
from belvedere.backend.memory import MemoryStore
from belvedere.backend.seam import TableWrite
from belvedere.cluster.process.logs import get
from belvedere.cluster.process.retrying import Retrying, Trouble
from belvedere.retry import Superseded


def test_a_long_write_is_given_up_between_two_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seam, "_WRITE_ROWS", 10)
    store, asked = MemoryStore(), []

    def wanted() -> bool:
        asked.append(len(asked))
        return len(asked) < 3

    ids = np.arange(60, dtype=np.uint64).reshape(-1, 2)
    write = TableWrite("t", ids, pa.array([b"x"] * 30, pa.binary()))
    with pytest.raises(Superseded):
        Retrying(store, wanted, Trouble(get("pool", "viewserver", "v"))).write(7, [write])
    assert store.usage() == {"t": 20} and len(asked) == 3
