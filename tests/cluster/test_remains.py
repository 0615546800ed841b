"""A pool that runs no more leaves nothing in ZooKeeper when it is discarded; one that runs is left alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from belvedere.backend import opening
from belvedere.cli.main import cli
from belvedere.cluster.coordination.remains import PoolRemains
from belvedere.cluster.coordination.zookeeper import ZooKeeperCredentials
from belvedere.errors import CoordinationUnavailable, Incompatible
from belvedere.local.zookeeper import LocalZooKeeper
from tests.cluster.coordination_worlds import ZooKeeperWorld, member

OWNER = ZooKeeperCredentials("belvedere", "s3cret:with colon")


@pytest.fixture
def world(zookeeper_server: LocalZooKeeper) -> Iterator[ZooKeeperWorld]:
    made = ZooKeeperWorld(zookeeper_server)
    yield made
    made.close()


def hosts(world: ZooKeeperWorld) -> str:
    return world.server.hosts + world.prefix


@pytest.mark.parametrize("credentials", [None, OWNER], ids=["open", "protected"])
def test_all_nodes_of_a_pool_are_removed_and_those_of_others_stay(
    world: ZooKeeperWorld, credentials: ZooKeeperCredentials | None
) -> None:
    pool, other = (world.connect(name, credentials=credentials) for name in ("pool", "other"))
    pool.join(member("a"))
    pool.create(b"record")
    other.create(b"record")
    with PoolRemains(hosts(world), "pool", credentials) as remains:
        with pytest.raises(Incompatible, match=r"pool 'pool' has members .*: end its processes first"):
            remains.refuse_members()
        pool.close()
        remains.refuse_members()
        assert remains.remove() and not remains.remove()
        remains.refuse_members()
    raw = world.raw(credentials)
    assert raw.exists(world.path()) is None and raw.exists(world.path("record", pool="other"))
    again = world.connect("pool", credentials=credentials)
    assert again.create(b"anew") is not None, "a pool of this name begins anew"


def test_without_the_credentials_nothing_is_removed(world: ZooKeeperWorld) -> None:
    pool = world.connect("pool", credentials=OWNER)
    pool.create(b"record")
    pool.close()
    with PoolRemains(hosts(world), "pool") as remains, pytest.raises(Incompatible, match="does not allow this"):
        remains.remove()
    assert world.raw(OWNER).exists(world.path("record"))


def test_a_zookeeper_that_is_away_is_not_waited_for_for_ever() -> None:
    with pytest.raises(CoordinationUnavailable, match="did not answer within 1 s"):
        PoolRemains("127.0.0.1:1", "pool", timeout=1.0).__enter__()


def test_discard_removes_the_record_after_what_is_in_hbase(
    world: ZooKeeperWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = world.connect("pool", credentials=OWNER)
    pool.join(member("a"))
    pool.create(b"record")
    secret = tmp_path / "credentials"
    secret.write_text(f"{OWNER.user}:{OWNER.password}\n")
    seen: list[bool] = []
    raw = world.raw(OWNER)

    def removed(url: str, name: str) -> str:
        seen.append(raw.exists(world.path("record")) is not None)
        return "the replication peer p"

    monkeypatch.setattr(opening, "discard", removed)
    words = ["discard", "hbase://zk/p", "--pool", "pool", "--yes", "--zookeeper", hosts(world)]
    words += ["--zookeeper-credentials", str(secret)]
    refused = CliRunner().invoke(cli, words)
    assert refused.exit_code == 1 and "has members" in refused.stderr and not seen
    pool.close()
    told = CliRunner().invoke(cli, words)
    assert told.output == "removed the replication peer p and the record of the pool in ZooKeeper\n"
    assert seen == [True] and raw.exists(world.path()) is None
    monkeypatch.setattr(opening, "discard", lambda url, name: "")
    assert CliRunner().invoke(cli, words).output == "the pool 'pool' has nothing at hbase://zk/p\n"
