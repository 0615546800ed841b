"""How a client repairs: it looks, offers, and looks again, as often as there is something left, and not for ever."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from belvedere import errors
from belvedere.cluster.client import repairing
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.client.repairing import MOST_LOOKS, PoolRepair
from belvedere.model.repair import MOST_TRIES, DamagedRow, RepairReport
from belvedere.retry import Deadline


class Pool:
    """`looks`: which rows are wrong at each look. `refuses`: so many offers are refused."""

    def __init__(self, looks: Sequence[Sequence[str]], refuses: int = 0) -> None:
        self.looks, self.refuses = list(looks), refuses
        self.offers: list[set[str]] = []
        self.rebuilt = 0
        self.held = 0

    def deadline(self) -> Deadline:
        return Deadline(5.0)

    def require_kept(self, epoch: int) -> None:
        assert self.held

    def rebuild(self, view: str) -> Any:
        self.rebuilt += 1
        return SimpleNamespace(epoch=900)


class Repairing(PoolRepair):
    building: set[int] = set()

    @property
    def pool(self) -> Pool:
        return cast(Pool, self.database)

    @contextlib.contextmanager
    def _look(self) -> Iterator[Any]:
        rows = self.pool.looks.pop(0) if self.pool.looks else ()
        found = [SimpleNamespace(rows=lambda: [DamagedRow("state", id, "different") for id in rows])] if rows else []
        self.pool.held += 1
        known = SimpleNamespace(epoch=100 + self.pool.held, committed=SimpleNamespace(catalog=1))
        yield SimpleNamespace(differences=lambda: iter(found)), known, self.building

    def _offer_all(self, look: Any, found: Any, rows: Any, catalog: int) -> Any:
        if self.pool.refuses:
            self.pool.refuses -= 1
            return set()
        self.pool.offers.append({id for _, id in rows})
        self._epoch = 500 + len(self.pool.offers)
        self._tries.update(rows)
        return rows

    def _names(self) -> tuple[str, ...]:
        return ("spend", "sizes")

    def _wait_for_builds(self, building: set[int]) -> None:
        self.building = set()


def repaired(pool: Pool, **more: Any) -> RepairReport:
    return Repairing(cast(ClusterDatabase, pool), "spend", **more).run()


def test_nothing_is_offered_where_nothing_is_wrong() -> None:
    pool = Pool([[]])
    report = repaired(pool)
    assert report.ok and (report.mended, report.found, report.epoch) == (0, 0, 101) and not pool.offers


def test_it_ends_with_a_look_that_finds_nothing() -> None:
    pool = Pool([["a", "b"], []])
    report = repaired(pool)
    assert report.ok and report.mended == 2 and report.tried_again == 0 and report.epoch == 501
    assert pool.offers == [{"a", "b"}] and pool.held == 2
    assert report.tables == {"state": 2} and {row.id for row in report.rows} == {"a", "b"}


def test_a_row_that_changed_is_tried_again_and_counted() -> None:
    report = repaired(Pool([["a", "b"], ["b"], []]))
    assert report.ok and report.mended == 2 and report.tried_again == 1 and report.found == 2


def test_what_came_to_light_meanwhile_is_repaired_as_well() -> None:
    report = repaired(Pool([["a"], ["c"], []]))
    assert report.ok and report.mended == 2 and report.tried_again == 0 and report.found == 2


def test_a_row_that_changes_all_the_time_makes_its_views_anew() -> None:
    pool = Pool([["a"]] * 20)
    report = repaired(pool)
    assert pool.rebuilt == 1 and len(pool.offers) == MOST_TRIES
    assert (
        report.ok and report.rebuilt == ("spend", "sizes") and report.epoch == 900 and report.tried_again == MOST_TRIES
    )


def test_an_offer_that_is_refused_is_no_try() -> None:
    pool = Pool([["a"]] * 6 + [[]], refuses=5)
    report = repaired(pool)
    assert report.ok and report.mended == 1 and report.tried_again == 0 and not pool.rebuilt


def test_a_store_that_is_damaged_all_the_time_is_given_up_with_the_reason() -> None:
    pool = Pool([[f"row {number}"] for number in range(2 * MOST_LOOKS)])
    report = repaired(pool)
    assert not report.ok and report.remaining == 1 and "something new was found" in report.problem


def test_a_dry_run_offers_nothing_and_lists_everything() -> None:
    pool = Pool([[f"row {number}" for number in range(300)]])
    report = repaired(pool, dry_run=True)
    assert not pool.offers and report.dry_run and not report.ok and len(report.rows) == report.found == 300
    assert len(repaired(Pool([[f"row {number}" for number in range(300)], []])).rows) == repairing.EXAMPLES


def test_it_waits_for_views_that_are_being_built() -> None:
    pool = Pool([["a"], ["a"], []])
    made = Repairing(cast(ClusterDatabase, pool), "spend")
    made.building = {7}
    report = made.run()
    assert report.ok and pool.offers == [{"a"}] and pool.held == 3


def test_a_store_that_does_not_answer_is_a_delay() -> None:
    class Away(Repairing):
        failures = 2

        def _offer_all(self, *given: Any) -> Any:
            if self.failures:
                self.failures -= 1
                raise errors.StoreUnavailable("away")
            return super()._offer_all(*given)

    pool = Pool([["a"], ["a"], ["a"], []])
    assert Away(cast(ClusterDatabase, pool), "spend").run().ok
    with pytest.raises(errors.DataError):
        Repairing(cast(ClusterDatabase, pool), "spend", dry_run=True).rebuild()
