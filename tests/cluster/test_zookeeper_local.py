"""The ZooKeeper server as a child process, and where its classes come from."""

from __future__ import annotations

import hashlib
import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from belvedere.cluster.coordination.zookeeper import ZooKeeperCoordination
from belvedere.errors import CoordinationUnavailable
from belvedere.local import zookeeper_jars
from belvedere.local.java import repository
from belvedere.local.zookeeper import LocalZooKeeper
from belvedere.local.zookeeper_jars import Jar, find_classes, find_java
from tests.cluster.zookeeper_server import eventually, require_zookeeper


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# --- the process


def test_what_was_written_is_there_after_a_restart_and_after_a_crash(tmp_path: Path) -> None:
    require_zookeeper()
    server = LocalZooKeeper(tmp_path / "made on demand", tick_ms=200)
    assert server.pid is None
    server.start()
    server.start()
    assert server.pid is not None
    port = server.port
    with closing(ZooKeeperCoordination(server.hosts, "pool")) as one:
        one.start(15.0)
        record = one.create(b"kept")
    for again in (server.restart, lambda: (server.stop(kill=True), server.start())):
        again()
        assert server.port == port
        with closing(ZooKeeperCoordination(server.hosts, "pool")) as reader:
            reader.start(15.0)
            assert reader.read() == record
    pid = server.pid
    server.stop()
    server.stop()
    assert server.pid is None
    assert not is_running(pid)


def test_it_listens_on_this_machine_only_and_answers_what_it_is_asked(zookeeper_server: LocalZooKeeper) -> None:
    assert zookeeper_server.command("ruok") == "imok"
    assert "Mode: standalone" in zookeeper_server.command("srvr")
    listening = {
        line.split()[1]
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{zookeeper_server.pid}/net/{table}").read_text().splitlines()[1:]
        if line.split()[1].endswith(f":{zookeeper_server.port:04X}") and line.split()[3] == "0A"
    }
    assert listening
    assert all("0100007F" in address for address in listening)


def test_a_stopped_process_is_ended_as_well(tmp_path: Path) -> None:
    require_zookeeper()
    server = LocalZooKeeper(tmp_path, sync=False)
    server.start()
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    server.stop()
    assert not is_running(pid)


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    require_zookeeper()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = LocalZooKeeper(tmp_path, port)
        with pytest.raises(CoordinationUnavailable, match=f"port {port} of 127.0.0.1 is in use"):
            server.start()
        assert server.pid is None


def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    require_zookeeper()
    server = LocalZooKeeper(tmp_path, min_session_timeout=2_000, max_session_timeout=1_000)
    with pytest.raises(CoordinationUnavailable, match=r"zookeeper\.log ends with"):
        server.start()
    assert server.pid is None


CHILD = """
import sys
from belvedere.local.zookeeper import LocalZooKeeper
server = LocalZooKeeper(sys.argv[1], sync=False)
server.start()
print(server.pid, flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("how", ["killed", "returned"])
def test_it_does_not_outlive_the_process_that_started_it(tmp_path: Path, how: str) -> None:
    require_zookeeper()
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    with child:
        assert child.stdin is not None and child.stdout is not None
        pid = int(child.stdout.readline())
        assert is_running(pid)
        if how == "killed":
            child.kill()
        child.stdin.close()
        child.wait(20)
    eventually(lambda: not is_running(pid))


# --- the classes


def test_the_repository_is_the_one_that_is_configured(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path)}
    assert repository({**environment, "BELVEDERE_MAVEN_REPOSITORY": "http://localhost/m2/"}) == "http://localhost/m2"
    assert repository(environment) is None
    settings = tmp_path / ".m2" / "settings.xml"
    settings.parent.mkdir()

    def with_mirror(of: str, more: str = "", namespace: str = "") -> str | None:
        mirror = f"<mirror><id>x</id><url>http://localhost/mirror/</url><mirrorOf>{of}</mirrorOf>{more}</mirror>"
        settings.write_text(f"<settings{namespace}><mirrors>{mirror}</mirrors></settings>")
        return repository(environment)

    for of in ("central", "*", "external:*", "other, central"):
        assert with_mirror(of) == "http://localhost/mirror"
    assert with_mirror("central", namespace=' xmlns="urn:settings"') == ("http://localhost/mirror")
    assert with_mirror("other") is None
    assert with_mirror("*,!central") is None
    assert with_mirror("central", "<blocked>true</blocked>") is None
    settings.write_text("<settings>")
    assert repository(environment) is None


def test_without_java_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(CoordinationUnavailable, match="no java on the PATH"):
        find_java({"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)})
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("")
    java.chmod(0o755)
    assert find_java({"PATH": "", "JAVA_HOME": str(tmp_path)}) == str(java)


def test_installed_packages_come_first(tmp_path: Path) -> None:
    for name in zookeeper_jars.DEBIAN_JARS:
        (tmp_path / f"{name}.jar").touch()
    found = find_classes({"BELVEDERE_CACHE": str(tmp_path / "cache")}, debian=tmp_path)
    assert [jar.parent for jar in found] == [tmp_path] * len(zookeeper_jars.DEBIAN_JARS)


@pytest.fixture
def maven(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder that is served as a repository."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Not into the output of the tests."""

    folder = tmp_path / "repository"
    folder.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_jars_are_fetched_once_and_checked(
    tmp_path: Path, maven: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, address = maven
    jars = [
        Jar("org.example", name, "1.0", hashlib.sha256(name.encode() * 1000).hexdigest()) for name in ("one", "two")
    ]
    monkeypatch.setattr(zookeeper_jars, "JARS", tuple(jars))
    for jar in jars:
        (folder / jar.path).parent.mkdir(parents=True)
        (folder / jar.path).write_bytes(jar.artifact.encode() * 1000)
    environment = {"BELVEDERE_CACHE": str(tmp_path / "cache"), "BELVEDERE_MAVEN_REPOSITORY": address}
    nothing_installed = tmp_path / "none"
    found = find_classes(environment, nothing_installed)
    assert [jar.read_bytes() for jar in found] == [b"one" * 1000, b"two" * 1000]
    (folder / jars[0].path).unlink()
    assert find_classes(environment, nothing_installed) == found  # from the cache
    found[1].write_bytes(b"damaged")
    assert find_classes(environment, nothing_installed)[1].read_bytes() == b"two" * 1000
    found[1].unlink()
    (folder / jars[1].path).write_bytes(b"something else")
    with pytest.raises(CoordinationUnavailable, match=r"two-1\.0\.jar has the SHA-256"):
        find_classes(environment, nothing_installed)
    found[0].unlink()
    with pytest.raises(CoordinationUnavailable, match="BELVEDERE_MAVEN_REPOSITORY can name a"):
        find_classes(environment, nothing_installed)
    assert list(found[0].parent.iterdir()) == []
