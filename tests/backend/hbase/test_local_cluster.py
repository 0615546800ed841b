"""The HBase that `belvedere dev hbase` and these tests start."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import happybase
import pytest

from belvedere.backend.hbase.local import jars
from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.errors import StoreUnavailable
from belvedere.retry import Backoff, Deadline, poll


def belvedere(*arguments: str, code: int = 0) -> dict:
    command = [sys.executable, "-m", "belvedere.cli.main", "dev", "hbase", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == code, done.stderr
    return dict(json.loads(done.stdout))


def test_it_answers_on_the_loopback_and_who_knows_the_directory_can_use_it(hbase: LocalHBase) -> None:
    assert hbase.answers() is None and LocalHBase(hbase.directory).pids() == hbase.pids()
    found = belvedere("status", "--directory", str(hbase.directory))
    assert found["answers"] and set(found["processes"]) == set(hbase.names)
    assert found["zookeeper"] == hbase.zookeeper and found["thrift"] == "{}:{}".format(*hbase.thrift)
    with socket.socket() as probe:
        probe.settimeout(1.0)
        outside = probe.connect_ex((_own_address(), hbase.thrift[1]))
    assert outside != 0


def _own_address() -> str:
    """An address of this machine that is not the loopback; if it has none, one that nobody has."""
    found = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    return str(next((address for address in found if not str(address).startswith("127.")), "192.0.2.1"))


def _a_killed_process_is_missed_and_comes_back(hbase: LocalHBase) -> None:
    address = hbase.thrift
    hbase.kill("thrift")
    assert hbase.answers() == "thrift does not run"
    hbase.start_one("thrift")
    assert poll(lambda: hbase.answers() is None, Deadline(120.0), Backoff(0.1, 0.5))
    assert hbase.thrift == address
    with pytest.raises(StoreUnavailable, match="no process 'thrifty'; it has zookeeper, master, regionserver-0"):
        hbase.start_one("thrifty")
    hbase.disown()  # the command ends it


@pytest.mark.slow
def test_the_command_starts_shows_and_stops_it_and_keeps_the_data(hbase: LocalHBase, tmp_path: Path) -> None:
    place = ["--directory", str(tmp_path / "dev")]
    assert belvedere("status", *place, code=4)["lacking"] == "zookeeper does not run"
    started = belvedere("up", *place, "--region-servers", "1")
    try:
        assert started["answers"] and list(started["processes"]) == ["zookeeper", "master", "regionserver-0", "thrift"]
        assert belvedere("up", *place)["processes"] == started["processes"]
        connection = happybase.Connection("127.0.0.1", int(started["thrift"].split(":")[1]), timeout=60_000)
        connection.create_table("t", {"f": {}})
        connection.table("t").put(b"row", {b"f:a": b"1"})
        assert connection.table("t").row(b"row") == {b"f:a": b"1"}
        connection.close()
        _a_killed_process_is_missed_and_comes_back(LocalHBase(tmp_path / "dev"))
    finally:
        stopped = belvedere("down", *place)
    assert sorted(stopped["stopped"]) == sorted(started["processes"])
    assert belvedere("down", *place) == {"stopped": []}
    assert belvedere("status", *place, code=4)["processes"] == {}


def test_what_is_missing_is_said_in_one_line(tmp_path: Path) -> None:
    assert "there is no java on the PATH" in str(jars.missing_tool({"PATH": str(tmp_path)}))
    (tmp_path / "java").write_text("#!/bin/sh\n")
    (tmp_path / "java").chmod(0o755)
    environment = {"PATH": str(tmp_path), "BELVEDERE_CACHE": str(tmp_path / "cache")}
    assert "there is no mvn on the PATH to fetch them" in str(jars.missing_tool(environment))
    with pytest.raises(StoreUnavailable, match=f"jars are not in {tmp_path}/cache/hbase-2"):
        jars.find_classes(environment)
    (tmp_path / "cache" / f"hbase-{jars.VERSION}").mkdir(parents=True)
    assert jars.missing_tool(environment) is None
