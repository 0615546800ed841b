"""The catalog of a pool, and views that cannot be computed: what fails with them, and how they come back."""

from __future__ import annotations

import pytest

from belvedere.cluster.catalog import catalogs, plan
from belvedere.errors import CatalogError
from tests.cluster.test_catalogs import (
    BIG,
    BIG_OVER_MIDDLE,
    MANIFEST,
    MIDDLE,
    ORDERS,
    SPEND,
    SPEND_2,
    after,
    served,
    view_groups,
)


def failed(document: bytes, building: set[int]) -> dict[str, tuple[int, str]]:
    return {
        name: (one.view.view_group, one.failure.reason) for name, one in catalogs.failed_at(document, building).items()
    }


def test_a_view_that_fails_takes_all_that_read_it_along_and_nothing_else() -> None:
    other = "CREATE MATERIALIZED VIEW other AS SELECT id FROM orders"
    document = after(ORDERS, SPEND, MIDDLE, BIG_OVER_MIDDLE, other)
    assert view_groups(document) == {1: ["spend"], 2: ["middle"], 3: ["big"], 4: ["other"]}
    amended = catalogs.fail(document, {("middle", 2): "a bug"}, (), 77, 9)
    assert catalogs.version(amended) == 9 and view_groups(amended) == {1: ["spend"], 4: ["other"]}
    assert served(amended, set()) == {"spend": 1, "other": 4}
    assert failed(amended, set()) == {"middle": (2, "a bug"), "big": (3, "it reads view 'middle', which failed: a bug")}
    error = catalogs.failed_at(amended, set())["big"].error()
    assert str(error).startswith(
        "view 'big' cannot be read since epoch 77: it reads view 'middle', which failed: a bug"
    )
    kept = catalogs.store_tables(amended)
    assert {"view middle 2", "view big 3", "quarantine big 3"} <= kept, "its rows stay until it is dropped"


def test_views_of_one_view_group_share_state_and_fail_apart() -> None:
    document = catalogs.apply_manifest(catalogs.empty(), MANIFEST)
    assert document is not None and view_groups(document) == {1: ["spend", "big"]}
    amended = catalogs.fail(document, {("big", 1): "a bug"}, (), 5, 2)
    assert view_groups(amended) == {1: ["spend"]} and set(failed(amended, set())) == {"big"}
    steps = plan.compile(amended).shard.view_groups[0].views
    assert steps == plan.compile(document).shard.view_groups[0].views[:1], "what goes on is planned as it was"


def test_a_view_that_failed_is_created_again_or_dropped() -> None:
    document = catalogs.fail(after(ORDERS, SPEND, BIG), {("spend", 1): "a bug"}, (), 5, 9)
    with pytest.raises(CatalogError, match="'spend' exists already"):
        catalogs.execute(document, SPEND)
    with pytest.raises(
        CatalogError, match="view 'middle' reads view 'spend': view 'spend' cannot be read since epoch 5"
    ):
        catalogs.execute(document, MIDDLE)
    again = after(SPEND.replace("CREATE", "CREATE OR REPLACE"), document=document)
    assert view_groups(again) == {3: ["spend", "big"]}, "with everything that failed since it reads it"
    assert set(failed(again, {3})) == {"spend", "big"}, "until it is built"
    assert served(again, set()) == {"spend": 3, "big": 3} and not failed(again, set())
    final = catalogs.retire(again, [3])
    assert final is not None and not {"view spend 1", "view big 2"} & catalogs.store_tables(final)
    with pytest.raises(CatalogError, match="is read by big; drop these first"):
        catalogs.execute(document, "DROP MATERIALIZED VIEW spend")
    dropped = after("DROP MATERIALIZED VIEW big", "DROP MATERIALIZED VIEW spend", document=document)
    assert not failed(dropped, set()) and view_groups(dropped) == {}
    assert view_groups(after(SPEND, document=dropped)) == {3: ["spend"]}


def test_a_new_version_that_fails_leaves_the_old_one_with_all_that_it_reads() -> None:
    """The cone is swapped as a whole: `spend` of the new version would be read beside `big` over the old one."""
    document = after(ORDERS, SPEND, BIG, SPEND_2)
    amended = catalogs.fail(document, {("big", 3): "a bug"}, (3,), 5, 9)
    assert served(amended, set()) == {"spend": 1, "big": 2} and not failed(amended, set())
    unbuilt = catalogs.failed_builds(amended)
    assert {name: one.view.view_group for name, one in unbuilt.items()} == {"spend": 3, "big": 3}
    assert "view 'big', which reads it, could not be built: a bug" in unbuilt["spend"].failure.reason
    over = after(MIDDLE, document=amended)
    assert catalogs.compile(over).view_groups[-1].below == frozenset([1]), "others read the version that is there"
    again = after(SPEND_2.replace("+ 1", "+ 2"), document=amended)
    assert served(again, set()) == {"spend": 4, "big": 4} and not catalogs.failed_builds(again)


def test_the_text_of_the_version_in_service_takes_back_one_that_could_not_be_built() -> None:
    replace_spend = SPEND.replace("CREATE", "CREATE OR REPLACE")
    document = catalogs.fail(after(ORDERS, SPEND, BIG, SPEND_2), {("big", 3): "a bug"}, (3,), 5, 9)
    again = after(replace_spend, document=document)
    assert served(again, set()) == {"spend": 1, "big": 2}, "nothing is built"
    assert not catalogs.failed_builds(again), "neither of it nor of its reader, which was swapped with it"
    assert catalogs.execute(again, replace_spend) is None
    twice = catalogs.apply_manifest(catalogs.empty(), MANIFEST)
    for version, group in ((3, 2), (5, 3)):  # each other text fails
        assert twice is not None
        twice = catalogs.apply_manifest(twice, MANIFEST.replace("total > 10", f"total > {version}"))
        assert twice is not None
        twice = catalogs.fail(twice, {("big", group): "a bug"}, (group,), 5, version)
    assert twice is not None and set(catalogs.failed_builds(twice)) == {"big"}
    settled = catalogs.apply_manifest(twice, MANIFEST)
    assert (
        settled is not None and not catalogs.failed_builds(settled) and served(settled, set()) == served(twice, set())
    )
    assert catalogs.apply_manifest(settled, MANIFEST) is None


def test_a_new_version_that_fails_in_service_does_not_bring_the_old_one_back() -> None:
    document = after(ORDERS, SPEND, SPEND_2)
    assert served(document, set()) == {"spend": 2}
    amended = catalogs.fail(document, {("spend", 2): "a bug"}, (), 5, 9)
    assert served(amended, set()) == {} and set(failed(amended, set())) == {"spend"}
    final = catalogs.retire(amended, [1])
    assert final is not None and view_groups(final) == {} and set(failed(final, set())) == {"spend"}


def test_an_old_version_that_fails_does_not_end_the_build_of_the_new_one() -> None:
    document = catalogs.fail(after(ORDERS, SPEND, SPEND_2), {("spend", 1): "a bug"}, (2,), 5, 9)
    assert view_groups(document) == {2: ["spend"]}
    assert set(failed(document, {2})) == {"spend"} and served(document, set()) == {"spend": 2}


def test_a_view_that_failed_while_it_was_built_can_be_dropped_and_created() -> None:
    document = catalogs.fail(after(ORDERS, SPEND), {("spend", 1): "a bug"}, (1,), 5, 9)
    assert set(catalogs.failed_builds(document)) == {"spend"} and not failed(document, set())
    assert not catalogs.failed_builds(after("DROP MATERIALIZED VIEW spend", document=document))
    assert view_groups(after(SPEND, document=document)) == {2: ["spend"]}


def test_a_view_fails_once() -> None:
    document = catalogs.fail(after(ORDERS, SPEND), {("spend", 1): "a bug"}, (), 5, 9)
    with pytest.raises(CatalogError, match="view 'spend' of view group 1 failed at epoch 5 already"):
        catalogs.fail(document, {("spend", 1): "another bug"}, (), 6, 10)


def test_a_catalog_has_the_format_before_unless_a_view_failed() -> None:
    document = after(ORDERS, SPEND)
    assert b'"format":1,' in document
    assert b'"format":2,' in catalogs.fail(document, {("spend", 1): "a bug"}, (), 5, 9)
