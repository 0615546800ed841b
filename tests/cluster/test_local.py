"""`belvedere local`, `scale` and `status`: a cluster for people to play with."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import belvedere
from belvedere import errors
from belvedere.cluster.process.local import CONTROL_FILE, ClusterShape, LocalCluster, control, local_url
from tests.cluster.real import is_whole, until

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
COMMAND = [sys.executable, "-m", "belvedere.cli.main"]


def belvedere_command(*arguments: str) -> str:
    done = subprocess.run([*COMMAND, *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


class Running:
    """The command as a user starts it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            [*COMMAND, "local", "--viewservers", "1", "--distributors", "1", "--directory", str(directory)],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.lines: list[str] = []
        while not any(line.startswith("url") for line in self.lines):
            line = self.process.stdout.readline()
            assert line, "".join(self.lines)
            self.lines.append(line)
        self.url = next(line.split()[1] for line in self.lines if line.startswith("url"))

    def children(self) -> list[int]:
        found = control(self.directory, "children")["children"]
        return [child["pid"] for child in found if child["pid"] is not None]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    found = Running(tmp_path / "local")
    yield found
    if found.process.poll() is None:
        found.process.kill()
    found.process.wait(60)
    assert found.process.stdout is not None
    found.process.stdout.close()


def test_the_command_prints_a_url_and_everything_ends_with_ctrl_c(running: Running) -> None:
    with belvedere.connect(running.url, timeout=100.0) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
        db.execute("CREATE MATERIALIZED VIEW total AS SELECT sum(n) AS n FROM t")
        token = db.put("t", [{"id": 1, "n": 20}, {"id": 2, "n": 22}])
        assert db.scan("total", after=token).to_pylist() == [{"n": 42}]

    answer = json.loads(belvedere_command("scale", "2", "--directory", str(running.directory), "--json"))
    assert [c["name"] for c in answer["children"] if c["name"].startswith("viewserver")] == [
        "viewserver-1",
        "viewserver-2",
    ]

    def shares() -> list[float]:
        found = json.loads(belvedere_command("--url", running.url, "--json", "status"))
        return [member["share"] for member in found["members"] if member["share"]]

    until(lambda: len(shares()) == 2, 100.0, "two view servers with a share of the ring")
    shown = belvedere_command("--url", running.url, "status")
    for word in ("viewserver-1", "distributor-1", "coordinator-1", "store-1", "share", "queue", "epoch", "lag_ms"):
        assert word in shown

    children = running.children()
    assert len(children) == 5
    os.killpg(running.process.pid, signal.SIGINT)
    assert running.process.wait(60) == 0
    until(lambda: not any(map(is_alive, children)), 20.0, "no child is left")
    assert local_url(running.directory) is None


def test_children_do_not_outlive_a_supervisor_that_was_killed(running: Running) -> None:
    children = running.children()
    running.process.kill()
    until(lambda: not any(map(is_alive, children)), 60.0, "no child is left")


def test_control_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(errors.Unavailable, match=r"no `belvedere local` runs in"):
        control(tmp_path, "scale", viewservers=2)
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    (tmp_path / CONTROL_FILE).write_text(json.dumps({"control": port, "secret": "x"}))
    with pytest.raises(errors.Unavailable, match=r"does not answer"):
        control(tmp_path, "scale", viewservers=2)


def test_a_cluster_starts_again_on_its_data_and_starts_again_what_dies(tmp_path: Path) -> None:
    shape = ClusterShape(viewservers=1, distributors=1, sync=False)
    with LocalCluster(tmp_path, shape) as cluster:
        first = cluster.url
        until(lambda: is_whole(cluster, 1), 100.0, "a view server")
        written = (tmp_path / CONTROL_FILE).read_text()
        with pytest.raises(errors.Locked, match=re.escape(str(tmp_path))), LocalCluster(tmp_path, shape):
            pass
        assert (tmp_path / CONTROL_FILE).read_text() == written, "it belongs to the one that runs"
        with belvedere.connect(first, timeout=100.0) as db:
            db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
            token = db.put("t", [{"id": 1, "n": 1}])
            db.wait(token)
        secret = json.loads((tmp_path / CONTROL_FILE).read_text())["secret"]
        (tmp_path / CONTROL_FILE).write_text((tmp_path / CONTROL_FILE).read_text().replace(secret, "guessed"))
        with pytest.raises(errors.DataError, match=r"wrong secret"):
            control(tmp_path, "scale", viewservers=3)
        with pytest.raises(errors.DataError, match=r"there must be one at least"):
            cluster.scale(0)
    with LocalCluster(tmp_path, shape) as cluster:
        assert cluster.url == first
        pid = cluster.children["viewserver-1"].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(lambda: cluster.children["viewserver-1"].pid not in (None, pid), 60.0, "another process")
        with belvedere.connect(first, timeout=100.0) as db:
            assert db.scan("t").to_pylist() == [{"id": 1, "n": 1}]
            begin = time.monotonic()
            db.wait(db.put("t", [{"id": 2, "n": 2}]), 100.0)
            assert time.monotonic() - begin < 100.0


def joined(log: Path) -> set[str]:
    """The members that joined by this log."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return {line["id"] for line in lines if line["event"] == "joined"}


def test_spares_take_the_place_of_view_servers_that_are_added_or_die(tmp_path: Path) -> None:
    shape = ClusterShape(viewservers=1, distributors=1, spares=1, sync=False)
    with LocalCluster(tmp_path / "local", shape) as cluster:
        until(lambda: is_whole(cluster, 1), 120.0, "one view server")
        (first,) = until(lambda: cluster.spares, 60.0, "a spare")
        cluster.scale(2)
        assert cluster.children["viewserver-2"].pid == first
        until(lambda: is_whole(cluster, 2), 60.0, "two view servers")
        log = cluster.directory / "logs" / "viewserver-2.log"
        until(lambda: len(joined(log)) == 1, 60.0, "it writes where one of that name does")
        (second,) = until(lambda: cluster.spares, 60.0, "another spare")
        assert second != first
        os.kill(first, signal.SIGKILL)
        until(lambda: cluster.children["viewserver-2"].pid == second, 60.0, "a spare takes its place")
        until(lambda: len(joined(log)) == 2, 60.0, "and so does the next one")
        (third,) = until(lambda: cluster.spares, 60.0, "a third spare")
        os.kill(third, signal.SIGKILL)
        (fourth,) = until(lambda: [pid for pid in cluster.spares if pid != third], 60.0, "a dead spare is replaced")
    assert not is_alive(fourth), "spares end with their cluster"
