"""Documents: what was put is there, repeats change nothing."""

from __future__ import annotations

from belvedere.backend.seam import Store


def test_the_identity_does_not_change(store: Store) -> None:
    assert store.identity() and store.identity() == store.identity()


def test_documents_are_replaced_listed_and_removed(store: Store) -> None:
    assert store.get_document("plan/1") is None
    for name in ("plan/2", "plan/10", "pin/1", "plan", "pläne/1"):
        store.put_document(name, name.encode())
    store.put_document("plan/2", b"again")
    store.put_document("empty", b"")
    assert store.get_document("plan/2") == b"again"
    assert store.get_document("pläne/1") == "pläne/1".encode()
    assert store.get_document("empty") == b""
    assert store.list_documents("plan/") == ["plan/10", "plan/2"]
    assert store.list_documents("") == ["empty", "pin/1", "plan", "plan/10", "plan/2", "pläne/1"]
    store.remove_documents(["plan/2", "nobody", "pin/1"])
    store.remove_documents([])
    assert store.list_documents("p") == ["plan", "plan/10", "pläne/1"]
    assert store.get_document("plan/2") is None


def test_documents_may_be_big_and_names_long(store: Store) -> None:
    name, data = "catalog/" + "n" * 400, bytes(range(256)) * 8192
    store.put_document(name, data)
    assert store.get_document(name) == data
    assert store.list_documents("catalog/") == [name]
