"""The catalog of a pool as a document: the answers of the embedded database, view groups, swaps, plans that stay."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

import belvedere
from belvedere.backend.served import versions
from belvedere.cluster.catalog import catalogs, ddl, names, plan
from belvedere.cluster.process.options import ProcessOptions
from belvedere.cluster.roles.coordinator import CoordinatorMember
from belvedere.engine.expr.functions import FUNCTIONS
from belvedere.engine.version import ENGINE_VERSION
from belvedere.errors import (
    BelvedereError,
    CatalogError,
    Damaged,
    Defect,
    FormatError,
    Incompatible,
    PeerUnavailable,
    SqlError,
)
from belvedere.plan.nodes import Plan, topological
from belvedere.sql.catalog import Catalog, ViewDef
from belvedere.sql.manifest_target import Target
from belvedere.sql.query import Query

ORDERS = "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, total DECIMAL(12,2))"
SPEND = "CREATE MATERIALIZED VIEW spend AS SELECT customer, count(*) AS n, sum(total) AS total FROM orders GROUP BY 1"
BIG = "CREATE MATERIALIZED VIEW big AS SELECT customer, total FROM spend WHERE total > 10"
MIDDLE = "CREATE MATERIALIZED VIEW middle AS SELECT customer, total FROM spend WHERE n > 1"
BIG_OVER_MIDDLE = BIG.replace("FROM spend", "FROM middle")
SPEND_2 = SPEND.replace("CREATE", "CREATE OR REPLACE").replace("sum(total)", "sum(total) + 1")

MANIFEST = """
apiVersion: belvedere.dev/v1alpha1
kind: BaseTable
metadata: {name: orders}
spec:
  columns: [{name: id, type: bigint}, {name: customer, type: bigint}, {name: total, type: "decimal(12,2)"}]
  key: [id]
---
apiVersion: belvedere.dev/v1alpha1
kind: MaterializedView
metadata: {name: spend}
spec: {query: "SELECT customer, count(*) AS n, sum(total) AS total FROM orders GROUP BY customer"}
---
apiVersion: belvedere.dev/v1alpha1
kind: MaterializedView
metadata: {name: big}
spec: {query: "SELECT customer, total FROM spend WHERE total > 10"}
"""


def _manifest(sql: str) -> str:
    name, query = re.fullmatch(r"CREATE MATERIALIZED VIEW (\w+) AS (.*)", sql).groups()  # type: ignore[union-attr]
    return (
        "apiVersion: belvedere.dev/v1alpha1\nkind: MaterializedView\n"
        f'metadata: {{name: {name}}}\nspec: {{query: "{query}"}}'
    )


def after(*statements: str, document: bytes | None = None, building: tuple[int, ...] = ()) -> bytes:
    document = catalogs.empty() if document is None else document
    for statement in statements:
        following = catalogs.execute(document, statement, building)
        assert following is not None, statement
        assert catalogs.version(following) == catalogs.version(document) + 1
        document = following
    return document


def view_groups(document: bytes) -> dict[int, list[str]]:
    return {c.number: [v.definition.name for v in c.views] for c in catalogs.compile(document).view_groups}


def served(document: bytes, building: set[int]) -> dict[str, int]:
    names = catalogs.names_at(document, building)
    return {name: found.view_group for name, found in names.items() if isinstance(found, catalogs.ServedView)}


def test_a_view_is_served_once_it_and_all_below_are_complete() -> None:
    document = after(ORDERS, SPEND, BIG)
    assert view_groups(document) == {1: ["spend"], 2: ["big"]}
    assert catalogs.compile(document).made == (2,)
    assert served(document, {1, 2}) == {}
    assert served(document, {1}) == {}, "big is complete over rows that are not"
    assert served(document, {2}) == {"spend": 1}
    assert served(document, set()) == {"spend": 1, "big": 2}
    assert isinstance(catalogs.names_at(document, {1, 2})["orders"], catalogs.ServedTable)


def test_views_of_older_view_groups_are_leaves_and_nothing_below_them_is_shared() -> None:
    other = "CREATE MATERIALIZED VIEW twice AS SELECT o.customer, s.total, count(*) AS n FROM orders o JOIN spend s "
    other += "ON o.customer = s.customer GROUP BY 1, 2"
    document = after(ORDERS, SPEND, other)
    first, second = catalogs.compile(document).shard.view_groups
    assert second.leaves == first.views
    inside = set(topological(Plan(second.views))) - set(topological(Plan(first.views)))
    assert not {n for n in inside if n in topological(Plan(first.views))}
    assert second.views[0] in inside


def test_a_replaced_view_and_its_dependants_are_swapped_together() -> None:
    document = after(ORDERS, SPEND, BIG, SPEND_2)
    assert view_groups(document) == {1: ["spend"], 2: ["big"], 3: ["spend", "big"]}
    assert served(document, {3}) == {"spend": 1, "big": 2}
    assert served(document, set()) == {"spend": 3, "big": 3}
    assert catalogs.retire(document, [1, 2]) is None
    final = catalogs.retire(document, [1, 2, 3])
    assert final is not None and view_groups(final) == {3: ["spend", "big"]}
    assert catalogs.retire(final, [3]) is None
    gone = catalogs.store_tables(document) - catalogs.store_tables(final)
    assert {"view spend 1", "view big 2", "quarantine spend 1"} <= gone
    assert "delta orders" in catalogs.store_tables(final) and "view spend 3" in catalogs.store_tables(final)


def test_an_unfinished_view_group_that_is_replaced_is_dropped_at_once() -> None:
    document = after(ORDERS, SPEND, BIG, SPEND_2)
    third = SPEND_2.replace("+ 1", "+ 2")
    document = after(third, document=document, building=(3,))
    assert view_groups(document) == {1: ["spend"], 2: ["big"], 4: ["spend", "big"]}
    assert served(document, {4}) == {"spend": 1, "big": 2}


REPLACED = [
    (3, (SPEND, BIG)),
    (2, (MANIFEST,)),
    (4, (SPEND, MIDDLE, BIG_OVER_MIDDLE)),
    (3, (SPEND, "\n---\n".join(_manifest(sql) for sql in (MIDDLE, BIG_OVER_MIDDLE)))),
]


@pytest.mark.parametrize(("swapped", "made"), REPLACED)
def test_what_a_version_in_service_reads_is_dropped_together_with_it(swapped: int, made: tuple[str, ...]) -> None:
    """`spend` is replaced, and then `big` over it while the first build is still running: the new `spend` is complete
    before the new `big`, and the old `big` needs the old `spend`."""
    document = catalogs.empty() if made == (MANIFEST,) else after(ORDERS)
    for text in made:
        if text.startswith("CREATE"):
            document = after(text, document=document)
        else:
            document = catalogs.apply_manifest(document, text) or b""
    before = view_groups(document)
    document = after(SPEND_2, document=document)
    bigger = catalogs.compile(document).catalog.relation("big")
    assert isinstance(bigger, ViewDef)
    replaced = f"CREATE OR REPLACE MATERIALIZED VIEW big AS {bigger.sql.replace('10', '20')}"
    document = after(replaced, document=document, building=(swapped,))
    assert served(document, {swapped + 1})["spend"] == swapped
    old = served(document, {swapped + 1})["big"]
    assert old < swapped
    while (fewer := catalogs.retire(document, set(view_groups(document)) - {swapped + 1})) is not None:
        document = fewer
    assert {number: view_groups(document).get(number) for number in before} == before
    assert served(document, {swapped + 1})["big"] == old
    final = catalogs.retire(document, view_groups(document))
    assert final is not None and set(view_groups(final)) == {swapped, swapped + 1}
    assert catalogs.retire(final, view_groups(final)) is None


def test_the_leader_drops_nothing_while_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ddl, "TAKEN_SECONDS", 0.0)
    document = after(ORDERS, SPEND, SPEND_2, "CREATE MATERIALIZED VIEW other AS SELECT id FROM orders")
    offers: list[object] = []
    for building in ((3,), ()):
        leader = SimpleNamespace(
            in_loop=lambda ask: ask(),
            require_lead=lambda: None,
            machine=SimpleNamespace(catalog=(4, "document", building), engine=ENGINE_VERSION),
            around=SimpleNamespace(store=SimpleNamespace(get_document=lambda name: document), follower=None),
            loop=SimpleNamespace(post=offers.append),
            options=SimpleNamespace(pool="default", retention=60.0, engines=(ENGINE_VERSION, ENGINE_VERSION)),
        )
        catalog = ddl.CatalogService(cast(CoordinatorMember, leader))
        if building:
            catalog.look_after()
            assert not offers
        else:
            with pytest.raises(PeerUnavailable, match="in no plan"):
                catalog.look_after()
    assert len(offers) == 1


def test_a_view_group_keeps_its_plan_when_a_part_of_it_goes() -> None:
    """`spend` shares its pre-aggregation with `most`, which is dropped: the state of `spend` must keep its layout."""
    most = "apiVersion: belvedere.dev/v1alpha1\nkind: MaterializedView\nmetadata: {name: most}\n"
    most += 'spec: {query: "SELECT customer, max(id) AS id FROM orders GROUP BY customer"}\n'
    document = catalogs.apply_manifest(catalogs.empty(), MANIFEST + "---\n" + most)
    assert document is not None
    assert view_groups(document) == {1: ["spend", "big", "most"]}
    before = {view.name: view for view in catalogs.compile(document).shard.view_groups[0].views}
    document = after("DROP MATERIALIZED VIEW most", document=document)
    kept = {view.name: view for view in catalogs.compile(document).shard.view_groups[0].views}
    assert kept == {"spend": before["spend"], "big": before["big"]}
    alone = catalogs.compile(after(ORDERS, SPEND)).shard.view_groups[0].views[0]
    assert alone.input != before["spend"].input, "the test is empty unless they share"


def test_a_view_group_keeps_its_plan_when_what_a_dropped_view_of_it_read_goes_too() -> None:
    other = "CREATE TABLE people (id BIGINT PRIMARY KEY, name STRING)"
    manifest = "\n---\n".join(
        "apiVersion: belvedere.dev/v1alpha1\nkind: MaterializedView\n"
        f'metadata: {{name: {name}}}\nspec: {{query: "{query}"}}'
        for name, query in [("names", "SELECT id, name FROM people"), ("ids", "SELECT customer, id FROM orders")]
    )
    document = catalogs.apply_manifest(after(ORDERS, other), manifest)
    assert document is not None
    ids = catalogs.compile(document).shard.view_groups[0].views[1]
    document = after("DROP MATERIALIZED VIEW names", "DROP TABLE people", document=document)
    assert [table.name for table in catalogs.compile(document).shard.tables] == ["orders"]
    document = after("CREATE TABLE people (other STRING PRIMARY KEY)", document=document)
    compiled = catalogs.compile(document)
    assert [table.name for table in compiled.shard.tables] == ["orders", "people~2"]
    assert compiled.tables["people"].definition.name == "people"
    assert compiled.shard.view_groups[0].views == (ids,)
    document = after("DROP MATERIALIZED VIEW ids", document=document)
    assert b'"name"' in document and b'"name","string"' not in document, "what nothing refers to is forgotten"


def test_a_table_that_is_created_again_is_another_one_in_the_store() -> None:
    document = after(ORDERS, SPEND, "DROP MATERIALIZED VIEW spend", "DROP TABLE orders", ORDERS, SPEND)
    compiled = catalogs.compile(document)
    assert [table.name for table in compiled.shard.tables] == ["orders~2"]
    deltas = [node for node in topological(Plan(compiled.shard.view_groups[0].views)) if hasattr(node, "table")]
    assert [node.table for node in deltas] == ["orders~2"]
    assert compiled.catalog.tables["orders"].name == "orders"
    assert view_groups(document) == {2: ["spend"]}, "a number is never used again"
    with pytest.raises(CatalogError, match="'orders~2' is the name of table 'orders' in the store"):
        catalogs.execute(document, "CREATE MATERIALIZED VIEW `orders~2` AS SELECT id FROM orders")


def test_added_columns_do_not_change_views() -> None:
    star = "CREATE MATERIALIZED VIEW everything AS SELECT * FROM orders"
    document = after(ORDERS, star)
    before = catalogs.compile(document).shard.view_groups
    document = after("ALTER TABLE orders ADD COLUMN note STRING", document=document)
    assert catalogs.compile(document).shard.view_groups == before
    assert [c.name for c in catalogs.compile(document).shard.tables[0].columns] == ["id", "customer", "total", "note"]
    document = after(star.replace("CREATE", "CREATE OR REPLACE"), document=document)
    assert [c.name for c in catalogs.compile(document).catalog.views["everything"].columns][-1] == "note"


def test_dropping_is_refused_while_a_replaced_version_reads_it() -> None:
    people = "CREATE TABLE people (id BIGINT PRIMARY KEY)"
    base = "CREATE MATERIALIZED VIEW ids AS SELECT id FROM orders"
    document = after(ORDERS, people, base, base.replace("CREATE", "CREATE OR REPLACE").replace("orders", "people"))
    with pytest.raises(CatalogError, match="table 'orders' is still read by view 'ids', which is being replaced"):
        catalogs.execute(document, "DROP TABLE orders")
    retired = catalogs.retire(document, [1, 2])
    assert retired is not None
    assert [t.name for t in catalogs.compile(after("DROP TABLE orders", document=retired)).shard.tables] == ["people"]


def test_a_manifest_is_one_change_and_one_view_group() -> None:
    document = catalogs.apply_manifest(catalogs.empty(), MANIFEST)
    assert document is not None and catalogs.version(document) == 1
    assert view_groups(document) == {1: ["spend", "big"]}
    assert catalogs.compile(document).made == (1,)
    assert catalogs.apply_manifest(document, MANIFEST) is None
    following = catalogs.apply_manifest(document, MANIFEST.replace("> 10", "> 20"))
    assert following is not None and view_groups(following) == {1: ["spend", "big"], 2: ["big"]}
    (table, *_) = MANIFEST.split("---")
    following = catalogs.apply_manifest(document, table.replace("]\n  key", ", {name: note, type: string}]\n  key"))
    assert following is not None and view_groups(following) == {1: ["spend", "big"]}
    assert len(catalogs.compile(following).catalog.tables["orders"].columns) == 4
    with pytest.raises(SqlError, match="nothing"):
        catalogs.apply_manifest(document, MANIFEST.replace("FROM orders", "FROM nothing"))


HOURLY = Target("reports", 3_600_000)
POOL = "apiVersion: belvedere.dev/v1alpha1\nkind: ViewPool\nmetadata: {name: reports}\nspec: {replicas: 3}\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "key: [id]",
            "key: [id]\n  pool: other",
            r"document 1, spec\.pool: table 'orders' belongs to pool 'other', this",
        ),
        ("spec: {query", "spec: {pool: default, query", r"spec\.pool: view 'spend' .* this is pool 'reports'"),
        ("spec: {query", "spec: {retention: 2h, query", r"document 2, spec\.retention: view 'spend' asks .* of 7200 s"),
        (
            "---",
            f"---\n{POOL}---",
            "document 2, spec: ViewPool 'reports' cannot be applied here: a running pool starts",
        ),
    ],
)
def test_what_a_pool_cannot_honour_is_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        catalogs.apply_manifest(catalogs.empty(), MANIFEST.replace(old, new, 1), target=HOURLY)


def test_a_view_may_ask_for_the_history_that_its_pool_keeps_and_not_for_more() -> None:
    text = MANIFEST.replace("key: [id]", "key: [id]\n  pool: reports").replace(
        "spec: {query", "spec: {pool: reports, retention: 1h, query"
    )
    document = catalogs.apply_manifest(catalogs.empty(), text, target=HOURLY)
    assert document is not None
    assert [view.retention_ms for view in catalogs.compile(document).catalog.views.values()] == [3_600_000] * 2
    longer = "CREATE MATERIALIZED VIEW ids RETENTION '61m' AS SELECT id FROM orders"
    with pytest.raises(CatalogError, match=r"keeps history for 3600 s.*--retention 3660"):
        catalogs.execute(document, longer, target=HOURLY)
    assert catalogs.execute(document, longer.replace("61m", "60m"), target=HOURLY) is not None


def test_a_leader_that_keeps_less_history_than_a_view_was_promised_says_so() -> None:
    document = after(ORDERS, SPEND.replace("spend AS", "spend RETENTION '1h' AS"), BIG)
    for retention, warned in ((3600.0, []), (60.0, ["spend"])):
        warnings: list[str] = []
        leader = SimpleNamespace(
            in_loop=lambda ask: ask(),
            require_lead=lambda: None,
            machine=SimpleNamespace(catalog=(3, "document", ())),
            around=SimpleNamespace(store=SimpleNamespace(get_document=lambda name: document), base=None, follower=None),
            options=SimpleNamespace(pool="default", retention=retention, engines=(ENGINE_VERSION, ENGINE_VERSION)),
            log=SimpleNamespace(warning=lambda event, reason, to=warnings: to.append(reason)),
        )
        ddl.CatalogService(cast(CoordinatorMember, leader)).repair()
        assert [re.findall("view '(.*?)'", warning)[0] for warning in warnings] == warned


def test_the_example_can_be_applied_to_a_pool_as_it_is_started_by_default() -> None:
    text = (Path(__file__).parents[2] / "examples" / "shop.yaml").read_text()
    kept = next(field.default for field in fields(ProcessOptions) if field.name == "retention")
    document = catalogs.apply_manifest(catalogs.empty(), text, target=Target("default", int(kept * 1000)))
    assert document is not None and view_groups(document) == {1: ["spend", "order_lines", "city_revenue"]}


def _without_shapes(document: bytes) -> bytes:
    """As an earlier version wrote it."""
    value = json.loads(document)
    for view_group in value["circuits"]:
        for view in view_group["views"]:
            del view["shape"], view["below"]
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


def test_readers_find_in_the_document_what_members_plan() -> None:
    history = [ORDERS, SPEND, MIDDLE, BIG_OVER_MIDDLE, SPEND_2, "DROP MATERIALIZED VIEW big", BIG]
    document = catalogs.empty()
    for statement in history:
        document = after(statement, document=document)
        numbers = sorted(view_groups(document))
        for building in itertools.chain.from_iterable(
            itertools.combinations(numbers, count) for count in range(len(numbers) + 1)
        ):
            planned = {
                name: found if isinstance(found, names.ServedTable) else (found.shape, found.view_group)
                for name, found in catalogs.names_at(document, building).items()
            }
            for written in (document, _without_shapes(document)):
                read = {
                    name: found if isinstance(found, names.ServedTable) else (found.shape, found.view_group)
                    for name, found in names.names_at(written, building).items()
                }
                assert read == planned, (statement, building)
    assert catalogs.compile(_without_shapes(document)).shard == catalogs.compile(document).shard
    following = catalogs.execute(_without_shapes(document), "CREATE TABLE another (id BIGINT PRIMARY KEY)")
    assert following is not None and b'"shape"' in following, "the next change adds what was missing"


REFUSED = [
    ORDERS,
    SPEND,
    "CREATE TABLE spend (id BIGINT PRIMARY KEY)",
    "CREATE MATERIALIZED VIEW orders AS SELECT id FROM orders",
    "CREATE MATERIALIZED VIEW x AS SELECT id FROM nowhere",
    "CREATE MATERIALIZED VIEW x AS SELECT o.id FROM orders o JOIN spend s ON o.id > s.n",
    "CREATE OR REPLACE MATERIALIZED VIEW spend AS SELECT customer FROM big",
    "CREATE OR REPLACE MATERIALIZED VIEW spend AS SELECT customer FROM spend",
    "DROP TABLE orders",
    "DROP TABLE spend",
    "DROP MATERIALIZED VIEW orders",
    "DROP MATERIALIZED VIEW spend",
    "DROP TABLE nowhere",
    "ALTER TABLE spend ADD COLUMN x INT",
    "ALTER TABLE orders ADD COLUMN TOTAL INT",
    "ALTER TABLE nowhere ADD COLUMN x INT",
]
NOTHING = [
    ORDERS.replace("TABLE", "TABLE IF NOT EXISTS"),
    SPEND.replace("VIEW", "VIEW IF NOT EXISTS"),
    SPEND.replace("CREATE", "CREATE OR REPLACE"),
    "DROP TABLE IF EXISTS nowhere",
    "DROP MATERIALIZED VIEW IF EXISTS nowhere",
]


def test_it_refuses_what_the_embedded_database_refuses_with_the_same_words() -> None:
    document = after(ORDERS, SPEND, BIG)
    with belvedere.open() as embedded:
        for statement in (ORDERS, SPEND, BIG):
            embedded.execute(statement)
        for statement in REFUSED:
            with pytest.raises(BelvedereError) as expected:
                embedded.execute(statement)
            with pytest.raises(BelvedereError) as found:
                catalogs.execute(document, statement)
            assert (type(found.value), str(found.value)) == (type(expected.value), str(expected.value)), statement
        for statement in NOTHING:
            embedded.execute(statement)
            assert catalogs.execute(document, statement) is None, statement
        assert embedded.catalog.views.keys() == catalogs.compile(document).catalog.views.keys()


def test_what_is_no_ddl_and_what_is_no_document_is_refused() -> None:
    document = after(ORDERS)
    with pytest.raises(CatalogError, match="INSERT does not change the catalog"):
        catalogs.execute(document, "INSERT INTO orders VALUES (1, 2, 3)")
    with pytest.raises(Damaged, match="no catalog"):
        catalogs.compile(b"[]")
    with pytest.raises(FormatError, match="format 3"):
        catalogs.compile(catalogs.empty().replace(b'"format":1', b'"format":3'))


def test_every_process_gets_the_same_plan() -> None:
    document = catalogs.apply_manifest(catalogs.empty(), MANIFEST)
    assert document is not None
    document = after(SPEND_2, document=document)
    program = (
        "import sys; from belvedere.cluster.catalog import catalogs; from belvedere.engine.graph import digest\n"
        "found = catalogs.compile(sys.stdin.buffer.read())\n"
        "print([digest(v, {}) for c in found.shard.view_groups for v in c.views], found.stages)"
    )
    printed = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": "viewserver"}
        done = subprocess.run([sys.executable, "-c", program], input=document, env=environment, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        printed.add(done.stdout)
    assert len(printed) == 1


@pytest.mark.parametrize("letter", ["n", "ä"])
def test_names_that_the_store_could_not_take_are_refused(letter: str) -> None:
    longest = letter * (catalogs.MAX_NAME // len(letter.encode()))
    table = f"CREATE TABLE `{longest}` (id BIGINT PRIMARY KEY, c BIGINT)"
    view = f"CREATE MATERIALIZED VIEW `{longest}_` AS SELECT c FROM `{longest}`".replace(f"{letter}_", "_")
    document = after(table, f"DROP TABLE `{longest}`", table, view)
    for name in catalogs.store_tables(document):
        versions.table_name(name)
    for statement in (table, view):
        with pytest.raises(CatalogError, match=r"has 4\d\d bytes in UTF-8, a pool takes 400"):
            catalogs.execute(after(table), statement.replace(f"`{longest[:-1]}", f"`{longest}", 1))
    manifest = MANIFEST.replace(
        'spec: {query: "SELECT customer, total', f'spec: {{name: {"b" * 401}, query: "SELECT total'
    )
    with pytest.raises(CatalogError, match="has 401 bytes"):
        catalogs.apply_manifest(catalogs.empty(), manifest)


def test_a_view_that_this_version_refuses_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    document = catalogs.empty()
    for sql in (
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, s STRING)",
        "CREATE MATERIALIZED VIEW shouted AS SELECT id, upper(s) AS u FROM orders",
    ):
        changed = catalogs.execute(document, sql)
        assert changed is not None
        document = changed

    def newer(sql: str, known: Catalog) -> Query:
        raise SqlError("no function upper", line=1, column=12)

    catalogs.compile.cache_clear()
    monkeypatch.setattr(plan, "_memory", plan._Memory())
    with monkeypatch.context() as patch:
        patch.setattr("belvedere.model.ddl.bind_query", newer)
        with pytest.raises(
            Incompatible, match=r"view 'shouted' .*no function upper.*; replace or drop it .* upper\(s\)"
        ):
            catalogs.compile(document)
    assert list(catalogs.compile(document).catalog.views) == ["shouted"]


def test_a_view_that_cannot_be_computed_is_refused_before_it_is_in_the_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise TypeError("no such kernel")

    document = catalogs.execute(catalogs.empty(), "CREATE TABLE orders (id BIGINT PRIMARY KEY, s STRING)")
    assert document is not None
    monkeypatch.setitem(FUNCTIONS, "upper", broken)
    with pytest.raises(Defect, match="view 'shouted' cannot be computed"):
        catalogs.execute(document, "CREATE MATERIALIZED VIEW shouted AS SELECT id, upper(s) AS u FROM orders")
