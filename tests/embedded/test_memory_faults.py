"""Faults of the store in memory: a call stops exactly before, halfway through, or after its effect."""

from __future__ import annotations

import pytest

from belvedere.backend.memory import MemoryStore, Moment
from belvedere.backend.seam import TableWrite
from belvedere.errors import StoreUnavailable
from tests.backend.conformance.rows import ids, read, values
from tests.backend.conformance.test_input import chunk


def failing(call: str, moment: Moment) -> MemoryStore:
    store = MemoryStore()

    def strike(found: str, at: Moment) -> None:
        if (found, at) == (call, moment):
            store.faults = None
            raise StoreUnavailable(f"{call} {moment.value}")

    store.faults = strike
    return store


@pytest.mark.parametrize(
    ("moment", "there"),
    [(Moment.BEFORE, [None] * 4), (Moment.HALFWAY, [b"a", b"b", None, None]), (Moment.AFTER, [b"a", b"b", b"c", b"d"])],
)
def test_a_write_stops_where_it_is_told_to(moment: Moment, there: list[bytes | None]) -> None:
    store = failing("write", moment)
    writes = [TableWrite("t", ids(1), values(b"a")), TableWrite("t", ids(2, 3, 4), values(b"b", b"c", b"d"))]
    with pytest.raises(StoreUnavailable):
        store.write(1, writes)
    assert read(store, [1, 2, 3, 4]) == there
    store.write(1, writes)
    assert read(store, [1, 2, 3, 4]) == [b"a", b"b", b"c", b"d"]


def test_half_of_a_chunk_is_not_in_the_index() -> None:
    store = failing("put_chunks", Moment.HALFWAY)
    with pytest.raises(StoreUnavailable):
        store.put_chunks([(chunk(1), b"x")])
    assert store.chunks() == []
    store.put_chunks([(chunk(1), b"x")])
    assert store.chunks() == [chunk(1)] and store.get_chunks([chunk(1).id]) == [b"x"]


@pytest.mark.parametrize("moment", list(Moment))
def test_removals_can_be_repeated(moment: Moment) -> None:
    store = failing("remove_documents", moment)
    for name in "abc":
        store.put_document(name, b"")
    with pytest.raises(StoreUnavailable):
        store.remove_documents(list("abc"))
    assert (
        store.list_documents("")
        == {Moment.BEFORE: ["a", "b", "c"], Moment.HALFWAY: ["b", "c"], Moment.AFTER: []}[moment]
    )
    store.remove_documents(list("abc"))
    assert store.list_documents("") == []
