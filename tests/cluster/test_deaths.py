"""Who is gone before its session is."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from belvedere.cluster.process.loop import Worker
from belvedere.cluster.roles.failure_detector import GoneProcesses, refuses
from belvedere.protocol.messages import Member, Role
from belvedere.protocol.ring import MemberId
from tests.cluster.real import until


@pytest.fixture
def worker() -> Iterator[Worker]:
    failures: list[BaseException] = []
    made = Worker("deaths", failures.append)
    yield made
    made.close()
    assert not failures


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def member(name: str, address: str) -> Member:
    return Member(MemberId(name), Role.VIEWSERVER, address)


def test_only_a_refusal_is_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        listening = f"grpc://127.0.0.1:{server.getsockname()[1]}"
        assert not refuses(listening)
        assert not refuses(listening.replace("grpc", "grpc+tls"))
    assert refuses(listening)
    assert not refuses("v-1") and not refuses("grpc://no-such-host.invalid:1")


def test_who_is_gone_is_told_once_and_others_never(worker: Worker) -> None:
    told: list[str] = []
    deaths = GoneProcesses(worker, told.append)
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = member("there", f"grpc://127.0.0.1:{server.getsockname()[1]}")
        gone = member("gone", f"grpc://127.0.0.1:{free_port()}")
        until(lambda: deaths.look({}, [there, gone]) or told, 60.0, "somebody is gone")
        refused = {MemberId("known"): "Flight: Connection refused", MemberId("slow"): "Deadline exceeded"}
        deaths.look(refused, [])
        done = threading.Event()
        for _ in range(20):
            deaths.look(refused, [there, gone])
        worker.do(done.set)
        assert done.wait(60.0)
    assert told == ["gone", "known"]
