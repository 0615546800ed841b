"""What the leader has removed: gathered, said once however often it was found, and not one commit for each epoch."""

from __future__ import annotations

import pytest

from belvedere.backend.memory import MemoryStore
from belvedere.cluster.roles import gc_input
from belvedere.cluster.roles.gc_input import InputGc
from belvedere.protocol.exactly_once import Chunk, ChunkId, Seq, SourceId, WriterId


def chunk(number: int) -> ChunkId:
    return ChunkId(WriterId("w"), number)


def filled() -> MemoryStore:
    store = MemoryStore()
    for number in range(4):
        store.put_chunks([(Chunk(chunk(number), SourceId("s"), Seq(number), Seq(number)), b"x")])
        store.put_document(f"plans/{number}", b"p")
    return store


def test_what_was_said_several_times_is_removed_once_and_the_rest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    store, calls = filled(), []
    remove = store.remove_chunks
    monkeypatch.setattr(store, "remove_chunks", lambda ids: (calls.append(list(ids)), remove(ids)))
    gathered = InputGc(store)
    gathered.add(chunks=(chunk(0), chunk(1)))
    gathered.add(chunks=(chunk(1), chunk(2)), documents=("plans/0",))
    gathered.add(documents=("plans/0", "plans/2"))
    assert gathered.due
    gathered.remove(*gathered.take())
    assert calls == [[chunk(0), chunk(1), chunk(2)]]
    assert [found.id for found in store.chunks()] == [chunk(3)]
    assert store.list_documents("plans/") == ["plans/1", "plans/3"]
    assert not gathered.due


def test_it_is_due_again_after_a_pause() -> None:
    now = 100.0
    gathered = InputGc(filled(), lambda: now)
    gathered.add(chunks=(chunk(0),))
    gathered.remove(*gathered.take())
    gathered.add(chunks=(chunk(1),))
    assert not gathered.due
    now += gc_input.PAUSE_SECONDS
    assert gathered.due
