"""Frames of columns: what comes back equals what went in, whatever the memory of the columns looked like."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from belvedere.engine.vec import Status, Vec
from belvedere.errors import Damaged
from belvedere.model.physical import PAGE, PAGED_BYTES, frame, pack, unframe
from belvedere.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, INT, STRING, Kind, Type

NARROW, WIDE = Type(Kind.DECIMAL, 12, 2), Type(Kind.DECIMAL, 30, 2)
VALUES = {
    BIGINT: st.integers(-(2**63), 2**63 - 1),
    INT: st.integers(-(2**31), 2**31 - 1),
    DOUBLE: st.floats(allow_nan=False),
    BOOLEAN: st.booleans(),
    DATE: st.dates(),
    STRING: st.text(max_size=12),
    BINARY: st.binary(max_size=12),
    NARROW: st.integers(-(10**11), 10**11).map(lambda n: Decimal(n).scaleb(-2)),
    WIDE: st.integers(-(10**29), 10**29).map(lambda n: Decimal(n).scaleb(-2)),
}


@settings(max_examples=150, deadline=None)
@given(data=st.data(), count=st.integers(0, 20), before=st.integers(0, 9))
def test_columns_with_nulls_and_parts_of_longer_arrays_come_back(data, count, before):
    types = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=5))
    arrays = []
    for type in types:
        cells = st.none() | VALUES[type] if data.draw(st.booleans()) else VALUES[type]
        values = data.draw(st.lists(cells, min_size=before + count, max_size=before + count))
        arrays.append(pa.array(values, type.arrow).slice(before))
    weight = np.arange(count, dtype=np.int8)[::-1]
    made = frame([Vec.from_arrow(a, t) for a, t in zip(arrays, types, strict=True)], [weight, weight > 3])
    packed = pack(made)
    assert packed.nbytes == made.nbytes == sum(len(p) for p in made.pieces)
    assert bytes(packed) == b"".join(bytes(p) for p in made.pieces)
    columns, plain = unframe(packed, types, [np.int8, np.bool_])
    for vec, array in zip(columns, arrays, strict=True):
        assert vec.to_arrow().to_pylist() == array.to_pylist()
    assert plain[0].tolist() == weight.tolist() and plain[1].tolist() == (weight > 3).tolist()


def test_an_error_is_stored_as_null():
    vec = Vec(BIGINT, np.array([1, 2, 3]), np.array([1, Status.DIVISION, 0], np.uint8))
    ((back,), _) = unframe(pack(frame([vec])), [BIGINT])
    assert back.to_arrow().to_pylist() == [1, None, None]


def test_a_big_frame_is_whole_pages_of_memory():
    vec = Vec(BIGINT, np.arange(PAGED_BYTES // 8 + 5))
    packed = pack(frame([vec]))
    assert packed.nbytes % PAGE == 0 and np.frombuffer(packed, np.uint8).ctypes.data % PAGE == 0
    assert (unframe(packed, [BIGINT])[0][0].data == vec.data).all()


def test_a_frame_of_other_columns_is_refused():
    packed = pack(frame([Vec(BIGINT, np.arange(3))]))
    with pytest.raises(Damaged, match="1 columns where 2"):
        unframe(packed, [BIGINT, BIGINT])
