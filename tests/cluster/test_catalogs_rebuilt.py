"""The catalog of a pool whose engine cannot read the state that there is: which views are made anew, and when."""

from __future__ import annotations

from belvedere.cluster.catalog import catalogs
from belvedere.cluster.catalog.document import dump, load
from tests.cluster.test_catalogs import BIG, MANIFEST, ORDERS, SPEND, after, served, view_groups

OTHER = "CREATE MATERIALIZED VIEW other AS SELECT id FROM orders"
REBUILDING = (5,)


def made_under(engine: int, *statements: str, document: bytes | None = None) -> bytes:
    document = catalogs.empty() if document is None else document
    for statement in statements:
        following = catalogs.execute(document, statement, engine=engine)
        assert following is not None, statement
        document = following
    return document


def engines(document: bytes) -> dict[int, int]:
    return {group.number: group.made for group in catalogs.compile(document).shard.view_groups}


def test_a_view_group_tells_under_which_engine_it_was_made() -> None:
    document = made_under(4, ORDERS, SPEND, document=after("CREATE TABLE t (id BIGINT PRIMARY KEY)"))
    document = made_under(5, OTHER, document=document)
    assert engines(document) == {1: 4, 2: 5} and catalogs.compile(document).engines == (4, 5)
    assert dump(load(document)) == document
    assert b'"engine"' not in after(ORDERS, SPEND), "documents of before stay as they were"
    assert engines(after(ORDERS, SPEND)) == {1: 0}


def test_one_cone_after_the_other_is_made_anew() -> None:
    document = made_under(4, ORDERS, SPEND, OTHER, BIG)
    assert catalogs.rebuild(document, 4, REBUILDING) is None, "the pool can read it"
    assert catalogs.rebuild(document, 6, (4,)) is None, "it was made under an engine that rebuilt"
    first = catalogs.rebuild(document, 5, REBUILDING)
    assert first is not None and view_groups(first) == {1: ["spend"], 2: ["other"], 3: ["big"], 4: ["spend", "big"]}
    assert engines(first) == {1: 4, 2: 4, 3: 4, 4: 5} and catalogs.compile(first).made == (4,)
    assert served(first, {4}) == {"spend": 1, "other": 2, "big": 3}, "the old versions serve meanwhile"
    assert served(first, set()) == {"spend": 4, "other": 2, "big": 4}
    retired = catalogs.retire(first, view_groups(first))
    assert retired is not None and view_groups(retired) == {2: ["other"], 4: ["spend", "big"]}
    second = catalogs.rebuild(retired, 5, REBUILDING)
    assert second is not None and view_groups(second) == {2: ["other"], 4: ["spend", "big"], 5: ["other"]}
    done = catalogs.retire(second, view_groups(second))
    assert done is not None and catalogs.rebuild(done, 5, REBUILDING) is None
    assert catalogs.compile(done).engines == (5,)


def test_a_view_group_that_was_half_replaced_is_rebuilt_for_its_other_half() -> None:
    manifest = MANIFEST + f"---\n{MANIFEST.split('---')[2].replace('big', 'most')}"
    document = catalogs.apply_manifest(catalogs.empty(), manifest, engine=4)
    assert document is not None and view_groups(document) == {1: ["spend", "big", "most"]}
    wider = BIG.replace("CREATE", "CREATE OR REPLACE") + " AND customer > 0"
    document = made_under(5, wider, document=document)
    retired = catalogs.retire(document, view_groups(document))
    assert retired is not None and view_groups(retired) == {1: ["spend", "most"], 2: ["big"]}
    again = catalogs.rebuild(retired, 5, REBUILDING)
    assert again is not None and view_groups(again)[3] == ["spend", "most", "big"], "big reads spend: one cone"


def test_what_could_not_be_built_is_not_tried_again_until_somebody_does_something() -> None:
    document = made_under(4, ORDERS, SPEND, OTHER)
    rebuilt = catalogs.rebuild(document, 5, REBUILDING)
    assert rebuilt is not None
    failed = catalogs.fail(rebuilt, {("spend", 3): "a bug"}, {3}, 9, 9)
    assert served(failed, set()) == {"spend": 1, "other": 2}
    following = catalogs.rebuild(failed, 5, REBUILDING)
    assert following is not None and view_groups(following)[4] == ["other"], "the others go on"
    done = catalogs.retire(following, view_groups(following))
    assert done is not None and catalogs.rebuild(done, 5, REBUILDING) is None
    wanted = made_under(5, SPEND.replace("CREATE", "CREATE OR REPLACE"), document=done)
    again = catalogs.rebuild(wanted, 5, REBUILDING)
    assert again is not None and view_groups(again) == {1: ["spend"], 4: ["other"], 5: ["spend"]}


def test_readers_that_failed_do_not_keep_a_view_from_being_rebuilt() -> None:
    document = catalogs.fail(made_under(4, ORDERS, SPEND, BIG), {("big", 2): "a bug"}, (), 5, 9)
    rebuilt = catalogs.rebuild(document, 5, REBUILDING)
    assert rebuilt is not None and view_groups(rebuilt) == {1: ["spend"], 3: ["spend"]}
    done = catalogs.retire(rebuilt, view_groups(rebuilt))
    assert done is not None and set(catalogs.failed_at(done, ())) == {"big"}
    assert catalogs.rebuild(done, 5, REBUILDING) is None
