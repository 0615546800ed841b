"""Gateways are killed under load; nothing is lost, nothing happens twice, nobody goes back. See `killed`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.real import started
from tests.cluster.zookeeper_server import require_zookeeper
from tests.gateway.killed import Gateway, define_over, torture


@pytest.mark.slow
def test_a_server_that_is_killed_is_a_delay(tmp_path: Path) -> None:
    """The embedded database: with its server the database itself dies, and opens again."""
    load = torture([Gateway(["serve", "--db", str(tmp_path / "db")])], define_over, 6.0, kills=2, seed=1)
    assert load.writes > 10 and load.changes > 3


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [2, 3])
def test_a_server_that_is_killed_all_the_time_is_a_delay(tmp_path: Path, seed: int) -> None:
    load = torture([Gateway(["serve", "--db", str(tmp_path / "db")])], define_over, 60.0, kills=15, seed=seed)
    assert load.writes > 100


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_gateways_of_a_pool_that_are_killed_are_a_delay(tmp_path: Path) -> None:
    require_zookeeper()
    cluster = started(tmp_path / "cluster")
    try:
        gateways = [Gateway(["gateway", "--url", cluster.url]) for _ in range(2)]
        load = torture(gateways, define_over, 60.0, kills=15, seed=4)
        assert load.writes > 100
    finally:
        cluster.stop()
