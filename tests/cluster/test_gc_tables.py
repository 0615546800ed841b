"""Tables of what was dropped leave the store, once nobody can read them, and no others do."""

from __future__ import annotations

import json

from belvedere.backend.memory import MemoryStore
from belvedere.cluster.catalog import catalogs
from belvedere.cluster.roles.gc_tables import TableGc, garbage
from belvedere.engine.shard import view_table
from belvedere.protocol.messages import Epoch
from tests.backend.conformance.rows import write
from tests.cluster.test_catalogs import after

T = "CREATE TABLE T (id BIGINT PRIMARY KEY, c BIGINT)"
U = "CREATE TABLE u (id BIGINT PRIMARY KEY, c BIGINT)"


def with_pages(tables: frozenset[str]) -> set[str]:
    """As pools have them: state tables have tables of pages beside them."""
    return {*tables, *(f"{name} pages sum 3" for name in tables if name[0].isdecimal())}


def applied(document: bytes, **queries: str) -> bytes:
    """All views as one view group."""
    kind = {"apiVersion": "belvedere.dev/v1alpha1", "kind": "MaterializedView"}
    views = [{**kind, "metadata": {"name": name}, "spec": {"query": query}} for name, query in queries.items()]
    found = catalogs.apply_manifest(document, "\n---\n".join(map(json.dumps, views)))
    assert found is not None
    return found


def test_tables_that_were_dropped_are_garbage() -> None:
    document = after(T, U)
    assert garbage(document, catalogs.store_tables(document)) == []
    dropped = after("DROP TABLE t", document=document)
    assert garbage(dropped, ["delta T", "delta u"]) == ["delta T"]
    again = after(T, document=dropped)
    assert garbage(again, ["delta T", "delta u", "delta T~2"]) == ["delta T"]
    assert garbage(dropped, ["delta T~2", "delta new"]) == [], "they belong to a newer catalog"


def test_state_of_a_view_is_garbage_although_its_view_group_lives() -> None:
    a, b = "SELECT c, count(*) AS n FROM u GROUP BY c", "SELECT id, min(c) AS n FROM t GROUP BY id"
    document = applied(after(T, U), a=a, b=b)
    every = with_pages(catalogs.store_tables(document))
    assert garbage(document, every) == []
    dropped = after("DROP MATERIALIZED VIEW b", document=document)
    kept = with_pages(catalogs.store_tables(dropped))
    assert set(garbage(dropped, every)) == every - kept and kept < every
    assert any(name[0].isdecimal() for name in every - kept) and any(name[0].isdecimal() for name in kept)
    assert garbage(dropped, ["2 feed pages sum 3", "2 feed", "view c 2", "something else"]) == []


def test_names_with_the_word_pages_are_told_apart() -> None:
    document = after(U, "CREATE MATERIALIZED VIEW `a pages b` AS SELECT id, c FROM u")
    assert garbage(document, catalogs.store_tables(document)) == []


def test_what_somebody_may_still_read_stays() -> None:
    store = MemoryStore()
    write(store, 10, {1: b"x"}, table="delta T")
    write(store, 10, {1: b"x"}, table="delta u")
    gc, before = TableGc(store), after(T, U)
    dropped = after("DROP TABLE t", document=before)
    assert gc.drop(before, Epoch(20), Epoch(5)) == []
    assert gc.drop(dropped, Epoch(30), Epoch(20)) == []
    assert gc.drop(dropped, Epoch(40), Epoch(29)) == [], "epoch 29 may be the last one that knew it"
    assert gc.drop(dropped, Epoch(50), Epoch(30)) == ["delta T"] and set(store.usage()) == {"delta u"}


def test_tables_of_a_dropped_view_go_when_the_horizon_reaches_an_epoch_without_it() -> None:
    before = after(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)",
        "CREATE MATERIALIZED VIEW kept AS SELECT id, a FROM t",
        "CREATE MATERIALIZED VIEW dropped AS SELECT id FROM t WHERE a > 1",
    )
    later = after("DROP MATERIALIZED VIEW dropped", document=before)
    tables = [
        view_table(view) for view_group in catalogs.compile(before).shard.view_groups for view in view_group.views
    ]
    remaining = [
        view_table(view) for view_group in catalogs.compile(later).shard.view_groups for view in view_group.views
    ]
    (gone,) = set(tables) - set(remaining)
    store = MemoryStore()
    for table in tables:
        write(store, 5, {1: b"x"}, table=table)
    gc = TableGc(store)
    assert not gc.drop(before, Epoch(5), Epoch(5))
    assert not gc.drop(later, Epoch(6), Epoch(5)), "somebody may read at epoch 5"
    assert not gc.drop(later, Epoch(8), Epoch(5))
    assert gc.drop(later, Epoch(8), Epoch(6)) == [gone], "no later commit is needed: a pool may be idle"
    assert sorted(store.usage()) == sorted(remaining)
