"""Real processes on this machine: exact under load, whoever comes, goes, dies or sleeps."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import belvedere
from belvedere import errors
from belvedere.cluster.process.local import LocalCluster
from belvedere.cluster.process.next_engine import NEXT, REBUILDS
from belvedere.engine.version import ENGINE_VERSION
from belvedere.protocol.messages import PROTOCOL, Role
from tests.cluster.real import SHAPE, VIEWS, Load, is_whole, started, status, until


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    cluster = started(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster(shared: LocalCluster) -> LocalCluster:
    """With all its view servers, whatever a test before has done."""
    shared.scale(SHAPE.viewservers)
    until(lambda: is_whole(shared, SHAPE.viewservers), 60.0, "all view servers")
    return shared


def pid_of(cluster: LocalCluster, name: str) -> int:
    pid = cluster.children[name].pid
    assert pid is not None
    return pid


def leader_of(cluster: LocalCluster) -> str:
    leader = until(lambda: status(cluster).get("leader"), 60.0, "a leader")
    return str(leader).rsplit("-", 1)[0]


def test_views_are_exact_at_every_epoch_that_is_looked_at(cluster: LocalCluster) -> None:
    with Load(cluster.url, 1) as load:
        epochs = set()
        for _ in range(8):
            load.goes_on(3)
            epochs.add(load.check_now())
        assert len(epochs) == 8
        load.check_all()
    found = status(cluster)
    assert found["stalled"] == ""
    assert abs(sum(member.get("share") or 0.0 for member in found["members"]) - 1.0) < 0.001


def test_a_view_server_that_is_asked_to_go_leaves_within_ten_seconds(cluster: LocalCluster) -> None:
    cluster.scale(3)
    until(lambda: is_whole(cluster, 3), 60.0, "three view servers")
    with Load(cluster.url, 2) as load:
        load.goes_on()
        name = max(child.name for child in cluster.children.values() if child.role is Role.VIEWSERVER)
        process = cluster.children[name].process
        assert process is not None
        begin = time.monotonic()
        cluster.retire(name)
        assert process.wait(10.0) == 0
        took = time.monotonic() - begin
        load.goes_on()
        load.check_all()
    assert took < 10.0
    log = (cluster.directory / "logs" / f"{name}.log").read_text()
    assert "left the pool" in log


@pytest.mark.parametrize("role", [Role.VIEWSERVER, Role.DISTRIBUTOR, Role.COORDINATOR, Role.STORE])
def test_kill_minus_nine_costs_nothing_but_time(cluster: LocalCluster, role: Role) -> None:
    with Load(cluster.url, 10 + list(Role).index(role)) as load:
        load.goes_on()
        name = leader_of(cluster) if role is Role.COORDINATOR else f"{role.value}-1"
        os.kill(pid_of(cluster, name), signal.SIGKILL)
        load.goes_on()
        load.check_now()
        load.goes_on()
        load.check_all()


@pytest.mark.parametrize("role", [Role.VIEWSERVER, Role.COORDINATOR])
def test_a_process_that_slept_longer_than_its_session_begins_anew(cluster: LocalCluster, role: Role) -> None:
    with Load(cluster.url, 20 + list(Role).index(role)) as load:
        load.goes_on()
        name = leader_of(cluster) if role is Role.COORDINATOR else "viewserver-1"
        pid = pid_of(cluster, name)
        before = {member["id"] for member in status(cluster)["members"]}
        os.kill(pid, signal.SIGSTOP)
        try:
            load.goes_on()
        finally:
            os.kill(pid, signal.SIGCONT)
        again = f"{name}-"
        until(
            lambda: any(
                m["id"].startswith(again) and m["id"] not in before for m in status(cluster).get("members", [])
            ),
            60.0,
            f"{name} as a new incarnation",
        )
        assert cluster.children[name].pid == pid, "the same process"
        load.goes_on()
        load.check_all()


def test_the_number_of_view_servers_changes_under_load(cluster: LocalCluster) -> None:
    with Load(cluster.url, 30) as load:
        for wanted in (4, 1, 3, 2):
            cluster.scale(wanted)
            until(lambda wanted=wanted: is_whole(cluster, wanted), 60.0, f"{wanted} view servers")  # type: ignore[misc]
            load.check_now()
        load.check_all()


def test_zookeeper_may_be_away_for_a_while(cluster: LocalCluster) -> None:
    with Load(cluster.url, 40) as load:
        load.goes_on()
        cluster.zookeeper.stop()
        seen = [load.db.epoch]

        def stands_still() -> bool:
            """For half a second, in which writes are taken."""
            before = load.writes
            time.sleep(0.5)
            seen.append(load.db.epoch)
            return seen[-1] == seen[-2] and load.writes > before

        until(stands_still, 30.0, "no commits while nobody can say who leads")
        time.sleep(1.0)
        assert load.db.epoch == seen[-1]
        cluster.zookeeper.start()
        load.goes_on()
        assert load.db.epoch > seen[-1]
        load.check_all()


def test_a_poisoned_row_is_in_quarantine_and_everything_else_goes_on(cluster: LocalCluster) -> None:
    with Load(cluster.url, 45) as load, belvedere.connect(cluster.url, timeout=60.0) as db:
        db.execute("CREATE TABLE parts (id BIGINT PRIMARY KEY, n BIGINT)")
        db.execute("CREATE MATERIALIZED VIEW shares AS SELECT id, 12 / n AS share FROM parts")
        db.wait(db.put("parts", [{"id": 1, "n": 0}, {"id": 2, "n": 3}]), 60.0)
        before = {child.name: child.starts for child in cluster.children.values()}
        load.goes_on()
        (row,) = db.quarantine("shares").to_pylist()
        assert row["id"] == 1 and "division" in row["reason"]
        assert db.scan("shares").to_pylist() == [{"id": 2, "share": 4.0}]
        assert {child.name: child.starts for child in cluster.children.values()} == before, "nobody fell over it"
        db.wait(db.put("parts", {"id": 1, "n": 4}), 60.0)
        assert db.quarantine("shares").num_rows == 0
        assert db.get("shares", 1) == {"id": 1, "share": 3.0}
        load.check_all()


def test_the_store_may_be_started_again(cluster: LocalCluster) -> None:
    with Load(cluster.url, 50) as load:
        load.goes_on()
        process = cluster.children["store-1"].process
        assert process is not None
        process.terminate()
        assert process.wait(10.0) == 0
        load.goes_on()
        load.check_all()


def test_who_is_asked_twice_ends_at_once(cluster: LocalCluster) -> None:
    """With no leader to release it, a view server would wait; the second SIGTERM ends it."""
    leaders = [pid_of(cluster, f"coordinator-{number}") for number in (1, 2)]
    child = cluster.add(Role.VIEWSERVER, {"BELVEDERE_LEAVE_WITHIN": "600"})
    process = child.process
    assert process is not None
    until(lambda: is_whole(cluster, SHAPE.viewservers + 1), 60.0, "one more view server")
    log = cluster.directory / "logs" / f"{child.name}.log"
    before = log.stat().st_size  # an earlier process of that name may have left in the same file
    for pid in leaders:
        os.kill(pid, signal.SIGSTOP)
    try:
        cluster.retire(child.name)
        until(lambda: "asks to leave" in log.read_text()[before:], 30.0, "the first SIGTERM was heard")
        assert process.poll() is None
        process.terminate()
        assert process.wait(60.0) == 1
        assert "asked twice" in log.read_text()[before:], "it did not wait until its time was over"
    finally:
        for pid in leaders:
            os.kill(pid, signal.SIGCONT)


def test_members_of_two_protocols_and_engines_work_together(tmp_path: Path) -> None:
    """A rolling upgrade: one process after the other is replaced by one of the next version, which writes state that
    this one cannot read. Who comes back is refused."""
    cluster = started(tmp_path, replace(SHAPE, viewservers=2, distributors=1, coordinators=1))
    try:
        with Load(cluster.url, 60) as load:
            load.goes_on()
            for name in ("viewserver-1", "distributor-1", "coordinator-1", "viewserver-2", "store-1"):
                assert status(cluster)["protocol"] == PROTOCOL, "there are members that speak nothing else"
                if name in ("viewserver-1", "distributor-1", "coordinator-1", "viewserver-2"):
                    assert status(cluster)["engine"] == ENGINE_VERSION, "there are members that have nothing else"
                child = cluster.children[name]
                child.environment = {
                    "BELVEDERE_TEST_PROTOCOL": str(PROTOCOL + 1),
                    "BELVEDERE_TEST_ENGINE": str(ENGINE_VERSION + 1),
                }
                os.kill(pid_of(cluster, name), signal.SIGTERM)
                until(lambda child=child: child.starts > 1 and child.running, 60.0, f"{name} again")  # type: ignore[misc]
                load.goes_on()
                until(lambda: is_whole(cluster, 2), 60.0, "both view servers")
            until(lambda: status(cluster).get("protocol") == PROTOCOL + 1, 60.0, "the next protocol")
            until(lambda: status(cluster).get("engine") == ENGINE_VERSION + 1, 60.0, "the next engine")
            load.goes_on()
            back = cluster.children["viewserver-2"]
            back.environment = {"BELVEDERE_TEST_PROTOCOL": str(PROTOCOL + 1)}
            os.kill(pid_of(cluster, "viewserver-2"), signal.SIGTERM)
            log = tmp_path / "logs" / "viewserver-2.log"
            told = (
                f"viewserver viewserver-2 cannot take part in pool 'default': it has engine {ENGINE_VERSION}, the pool"
            )
            until(lambda: told in log.read_text(), 60.0, "the old engine is refused by name")
            load.goes_on()
            load.check_all()
    finally:
        cluster.stop()


def test_views_are_rebuilt_for_an_engine_that_cannot_read_their_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rolling upgrade under load to an engine that reads nothing of the one before: the views stay in the form
    before, until new versions, built aside, take their place."""
    monkeypatch.setenv("BELVEDERE_TEST_ENGINE", str(NEXT))
    cluster = started(tmp_path, replace(SHAPE, viewservers=1, distributors=1, coordinators=1))
    try:
        with Load(cluster.url, 62) as load:
            load.goes_on()
            subscription = load.db.subscribe("spend")
            groups = view_groups(load)
            assert status(cluster)["engine"] == NEXT and groups == {"spend": 1, "big": 2, "named": 3}
            for name in ("distributor-1", "viewserver-1", "coordinator-1"):
                assert status(cluster)["engine"] == NEXT, "there are members that have nothing else"
                child = cluster.children[name]
                child.environment = {"BELVEDERE_TEST_ENGINE": str(REBUILDS)}
                os.kill(pid_of(cluster, name), signal.SIGTERM)
                until(lambda child=child: child.starts > 1 and child.running, 60.0, f"{name} again")  # type: ignore[misc]
            until(lambda: status(cluster).get("engine") == REBUILDS, 60.0, "the engine that rebuilds")
            while status(cluster)["oldest_state"] != REBUILDS:
                load.check_now()
            swapped = status(cluster)["epoch"]
            load.goes_on()
            changes = iter(subscription)
            while next(changes).epoch <= swapped:  # a subscriber goes on with the new version
                pass
            subscription.close()
            load.check_all()
            assert min(view_groups(load).values()) > max(groups.values()), "every view is a new version"
    finally:
        cluster.stop()


def view_groups(load: Load) -> dict[str, int]:
    return {name: view["version"] for name, view in load.db.status()["views"].items()}


def test_a_view_that_no_process_can_compute_does_not_hold_up_the_others(tmp_path: Path) -> None:
    cluster = started(tmp_path, replace(SHAPE, viewservers=1, distributors=1, coordinators=1))
    try:
        with Load(cluster.url, 61) as load:
            load.goes_on()
            child = cluster.children["viewserver-1"]
            child.environment = {"BELVEDERE_TEST_FAILING_VIEW": "spend:1"}
            os.kill(pid_of(cluster, "viewserver-1"), signal.SIGTERM)
            until(lambda: child.starts > 1 and child.running, 60.0, "the view server again")
            until(lambda: load.db.status()["views"]["spend"].get("state") == "Failed", 60.0, "the view is set aside")
            load.goes_on()
            assert status(cluster)["stalled"] == ""
            failed = load.db.status()["views"]
            assert "cannot be computed here" in failed["spend"]["reason"]
            assert failed["big"]["reason"].startswith("it reads view 'spend', which failed: ArithmeticError: ")
            for view in ("spend", "big"):
                with pytest.raises(errors.ViewFailed, match=f"view {view!r} cannot be read since epoch"):
                    load.db.scan(view)
            assert load.db.scan("spend", allow_stale=True).num_rows > 0
            load.db.execute(VIEWS[0].replace("CREATE", "CREATE OR REPLACE"))
            load.goes_on()
            load.check_all()
    finally:
        cluster.stop()
