"""Figures by zone: names that people recognise, rows that add up."""

from __future__ import annotations

from belvedere.engine.shard import ShardCatalog, StagedGroup, layout
from belvedere.engine.zoning import zone_names
from tests.engine.shard.pool import History, plan
from tests.engine.shard.test_limits import pool_of
from tests.engine.test_engine import CATALOG, QUERIES, R, S


def names_of(query: str) -> set[str]:
    (one,) = layout(ShardCatalog((R, S), (StagedGroup(1, plan(CATALOG, {"v": QUERIES[query]})),))).view_groups
    return set(zone_names(one).values())


def test_zones_are_called_after_tables_and_views_with_their_keys() -> None:
    found = names_of("group_of_join")
    assert {"r", "s"} <= found
    rest = found - {"r", "s"}
    assert rest and all(name.startswith("v by ") for name in rest)


def test_every_step_has_a_zone_and_moves_are_between_zones() -> None:
    for query in QUERIES:
        (one,) = layout(ShardCatalog((R, S), (StagedGroup(1, plan(CATALOG, {"v": QUERIES[query]})),))).view_groups
        names = zone_names(one)
        assert set(names) == set(one.at.values())
        for edge in one.edges:
            assert one.stage[edge] > one.stage[edge.input]


def test_rows_and_state_are_counted_by_zone() -> None:
    pool, _, _ = pool_of(["aggregate", "inner"], servers=2)
    history = History(3, (R, S), keys=100)
    for epoch in range(1, 4):
        pool.epoch(epoch, {name: [history.changes(name, 200)] for name in ("r", "s")})
    received = {zone: 0 for shard in pool.shards for _, zone in shard.traffic}
    sent = dict(received)
    for shard in pool.shards:
        for (_, zone), passed in shard.traffic.items():
            received[zone] += passed.received
            sent[zone] += passed.sent
    assert received["r"] == received["s"] == 600
    moved = {zone for zone in received if zone not in ("r", "s")}
    assert moved and sum(received[zone] for zone in moved) == sum(sent.values()), "what is sent on arrives somewhere"
    for shard in pool.shards:
        figures, held = shard.figures(), shard.zones()
        assert sum(one.rows for one in held.values()) == figures["state_rows"]
        assert abs(sum(one.bytes for one in held.values()) - figures["state_bytes"]) <= len(held) * 8
        assert figures["keys_held"] > 0 and figures["keys_absent"] > 0
