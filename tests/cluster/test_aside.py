"""Which view groups are computed aside, and the documents of such builds."""

from __future__ import annotations

import json
from unittest import mock

import pytest

from belvedere.backend.memory import MemoryStore
from belvedere.cluster.catalog import aside, catalogs
from belvedere.errors import CatalogError, SqlError
from belvedere.protocol.messages import Epoch
from belvedere.sql.manifest_target import EMBEDDED, Target, applicable

POOL = Target("default", 60_000)
TABLE = "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT)"
NOW = 1_000_000


SPEND = "SELECT customer, count(*) AS n FROM orders GROUP BY customer"


def view(name: str, build: str | None, query: str = SPEND) -> str:
    spec = {"query": query, **({} if build is None else {"build": build})}
    named = {"apiVersion": "belvedere.dev/v1alpha1", "kind": "MaterializedView", "metadata": {"name": name}}
    return json.dumps({**named, "spec": spec})


def applied(text: str, before: bytes | None = None) -> bytes:
    document = before or catalogs.execute(catalogs.empty(), TABLE)
    assert document is not None
    changed = catalogs.apply_manifest(document, text, target=POOL)
    assert changed is not None
    return changed


class Large(MemoryStore):
    """As many rows as a test says."""

    rows = aside.LARGE_ROWS

    def usage(self) -> dict[str, int]:
        return {"delta orders": self.rows, "view spend 1": 10}


def chosen(document: bytes, store: MemoryStore, able: bool = True) -> tuple[str, str]:
    decided = aside.decide(document, store, NOW, able)
    group = catalogs.compile(decided).view_groups[-1]
    assert catalogs.undecided(decided) == ()
    assert catalogs.compile(decided).aside == ((group.number,) if group.build == "spark" else ())
    return group.build, group.why


def attached(store: MemoryStore, until: int = NOW + 1) -> MemoryStore:
    store.put_document(aside.runner_document("spark-1", until), b"")
    return store


def test_small_views_are_built_through_epochs_and_nothing_is_said() -> None:
    store = attached(Large())
    store.rows -= 1  # type: ignore[attr-defined]  # it is a large one
    plain = applied(view("spend", "epochs"))
    assert chosen(applied(view("spend", "auto")), store) == ("epochs", "")
    assert aside.decide(applied(view("spend", None)), store, NOW, True) == plain, "the same document as ever"


def test_large_views_are_built_by_spark_if_somebody_does_it() -> None:
    document = applied(view("spend", "auto"))
    build, why = chosen(document, attached(Large()))
    assert build == "spark" and "2000000 rows" in why and "spark-1 is attached" in why
    build, why = chosen(document, Large())
    assert build == "epochs" and "no Spark is attached" in why
    build, why = chosen(document, attached(Large(), NOW - 1))
    assert build == "epochs" and "no Spark is attached" in why, "its lease has ended"
    build, why = chosen(document, attached(Large()), able=False)
    assert build == "epochs" and "not all members" in why
    assert chosen(applied(view("spend", "epochs")), attached(Large())) == ("epochs", "")


def test_views_of_statements_choose_as_well() -> None:
    document = catalogs.execute(catalogs.empty(), TABLE)
    assert document is not None
    made = catalogs.execute(document, "CREATE MATERIALIZED VIEW all_of_it AS SELECT count(*) AS n FROM orders")
    assert made is not None
    assert chosen(made, attached(Large()))[0] == "spark"


def test_spark_waits_for_a_builder_and_counts_for_all_that_are_applied_together() -> None:
    document = applied("\n---\n".join([view("spend", "epochs"), view("other", "spark", "SELECT id FROM orders")]))
    assert chosen(document, MemoryStore()) == ("spark", "")
    with pytest.raises(CatalogError, match="cannot be built by Spark"):
        aside.decide(document, MemoryStore(), NOW, False)
    later = applied(view("later", "epochs", "SELECT customer FROM spend"), document)
    assert aside.decide(later, MemoryStore(), NOW, False) == later, "what was taken before is not refused"


def test_an_embedded_database_cannot_have_it() -> None:
    document = catalogs.compile(applied(view("spend", "epochs"))).catalog
    with pytest.raises(SqlError, match=r"spec\.build: view 'big' is to be built by Spark"):
        list(applicable(view("big", "spark"), lambda: document, EMBEDDED))
    assert [one.build for one in applicable(view("big", "auto"), lambda: document, EMBEDDED)] == ["auto"]  # type: ignore[union-attr]


def test_leaves_are_tables_and_views_of_older_groups() -> None:
    document = applied(view("spend", "epochs"))
    over = applied(view("over", "epochs", "SELECT s.n, o.id FROM spend s JOIN orders o ON s.customer = o.id"), document)
    assert aside.leaf_tables(over, 2) == ["delta orders", "view spend 1"]


def test_documents_of_builds_say_what_they_are_of() -> None:
    one, other = aside.AsideBuild(3, Epoch(77)), aside.AsideBuild(12, Epoch(9))
    names = [one.done, one.shape, one.task(1, 2, 8), other.progress, other.pace]
    assert aside.computed(names) == ((3, 77),)
    assert [aside.build_of(name) for name in names] == [one, one, one, other, other]
    assert aside.build_of("catalog/1-2/done") is None and aside.build_of("builds/x-1/done") is None
    assert aside.left_over(names, 12, [3]) == [other.progress, other.pace]
    assert aside.left_over(names, 11, []) == names[:3], "what this catalog does not know belongs to a newer one"


def test_what_was_chosen_is_kept_in_the_document() -> None:
    with mock.patch.object(aside, "LARGE_ROWS", 1):
        store = attached(Large())
        store.rows = 5  # type: ignore[attr-defined]  # it is a large one
        decided = aside.decide(applied(view("spend", "auto")), store, NOW, True)
        assert aside.decide(decided, MemoryStore(), NOW, True) == decided
        (group,) = catalogs.compile(decided).view_groups
        assert group.build == "spark" and "about 5 rows" in group.why
