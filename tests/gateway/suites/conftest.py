"""The suites of the embedded database and of the client of a cluster, over HTTP.

`belvedere.open` and the pool's `connect` give a client of a gateway that stands before the database. A test that is
not run so is in `NOT_HERE`, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import belvedere
from tests.cluster.client_pool import db, pool
from tests.cluster.fake_pool import FakePool
from tests.gateway.suites.over_http import OverHttp

__all__ = ["db", "pool"]

NOT_HERE: dict[str, str] = {
    "test_a_read_waits_for_the_sessions_writes_only_as_long_as_it_may": "it replaces insides of the database",
    "test_one_bit_is_enough_to_differ": "it compares by itself, with the queries of the catalog",
    "test_a_wrong_row_beside_quarantine_is_found": "it compares by itself, with the queries of the catalog",
    "test_what_was_not_published_comes_with_the_next_epoch": "the gateway follows every epoch as it comes",
    "test_a_row_that_is_as_it_was_is_no_change": "the gateway follows every epoch as it comes",
    "test_epochs_that_were_not_published_are_not_read": "a number is that epoch here, published or not",
    "test_a_read_whose_epoch_is_collected_meanwhile_is_done_again": "it waits for a call of its own thread",
    "test_what_stays_away_is_named_when_the_time_is_up": "the gateway says for itself that it gave up",
    "test_an_unknown_name_is_refused_although_every_answer_tells_of_a_newer_epoch": "the gateway asks twice",
    "test_a_scan_that_breaks_off_again_and_again_is_not_a_storm": "the gateway says for itself that it gave up",
    "test_a_range_of_a_base_table_costs_what_it_returns": "a page looks at one row more",
    "test_a_snapshot_of_an_epoch_that_is_never_published_stays_at_it": "positions of sources stay with the pool",
    "test_a_replacement_is_not_repeated_whatever_was_published_of_it": "before it ends it looks once more, on a new "
    "connection, and waits for what is published",
    "test_who_allows_stale_rows_gets_those_of_before_the_failure": "a failed view is not described: no key_columns",
    "test_views_are_waited_for_and_a_stalled_pool_is_named": "its 0.2 s are for one hop",
    "test_the_collector_may_come_while_pins_are_locked": "the gateway holds the pins, and hears of the end a bit later",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """They are left out, not skipped: nothing is missing on the machine that another one has."""
    left_out = [each for each in items if each.name.partition("[")[0] in NOT_HERE and "/suites/" in each.nodeid]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [each for each in items if each not in set(left_out)]


@pytest.fixture(autouse=True)
def over_http(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    opened: list[OverHttp] = []
    open_here, connect_here = belvedere.open, FakePool.connect

    def open(*arguments: Any, **options: Any) -> OverHttp:
        made = OverHttp(open_here(*arguments, **options), read_only=options.get("read_only", False))
        opened.append(made)
        return made

    def connect(self: FakePool, timeout: float = 10.0, max_age: float = 0.0) -> OverHttp:
        made = OverHttp(connect_here(self, timeout, max_age), pool=True, timeout=timeout)
        opened.append(made)
        return made

    monkeypatch.setattr(belvedere, "open", open)
    monkeypatch.setattr(FakePool, "connect", connect)
    yield
    for made in opened:
        made.close()
