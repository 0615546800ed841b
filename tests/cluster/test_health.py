"""Probes get an answer, whatever state the process is in, and never a traceback."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from belvedere import errors
from belvedere.cluster.process.health import Health
from belvedere.cluster.process.metrics import CONTENT_TYPE, Metrics


class Process:
    def __init__(self) -> None:
        self.now = 100.0
        self.reasons: list[str] = []
        self.defect: Exception | None = None
        self.metrics = Metrics("default", "viewserver", "vs-1")
        self.health = Health(
            "127.0.0.1",
            metrics=self.render,
            metrics_type=CONTENT_TYPE,
            reasons=self.why_not,
            alive_within=10,
            monotonic=lambda: self.now,
        )

    def render(self) -> bytes:
        if self.defect:
            raise self.defect
        return self.metrics.render()

    def why_not(self) -> list[str]:
        if self.defect:
            raise self.defect
        return self.reasons

    def ask(self, path: str, method: str = "GET") -> tuple[int, str, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.health.port, timeout=10)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type") or "", answer.read()
        finally:
            connection.close()

    def ask_json(self, path: str) -> tuple[int, Any]:
        status, kind, body = self.ask(path)
        assert kind == "application/json"
        return status, json.loads(body)


@pytest.fixture
def process() -> Iterator[Process]:
    made = Process()
    yield made
    made.health.close()


def test_metrics_are_served(process: Process) -> None:
    process.metrics.queue(17, 3)
    status, kind, body = process.ask("/metrics?name[]=x")
    assert (status, kind) == (200, CONTENT_TYPE)
    assert b'belvedere_queue_rows{pool="default",role="viewserver",server="vs-1",stage=""} 17.0\n' in body


def test_a_process_is_alive_while_its_main_loop_goes_round(process: Process) -> None:
    process.now += 9.5
    assert process.ask_json("/healthz") == (200, {"alive": True, "seconds_since_tick": 9.5})
    process.now += 10
    status, answer = process.ask_json("/healthz")
    assert status == 503
    assert answer["alive"] is False
    assert answer["reason"] == "the main loop has not gone round for 20 s, allowed are 10"
    process.health.tick()
    assert process.ask_json("/healthz") == (200, {"alive": True, "seconds_since_tick": 0.0})


def test_a_process_says_why_it_is_not_ready(process: Process) -> None:
    process.reasons = ["no generation yet", "zookeeper: süspended"]
    assert process.ask_json("/readyz") == (503, {"ready": False, "reasons": process.reasons})
    process.reasons = []
    assert process.ask_json("/readyz") == (200, {"ready": True, "reasons": []})


def test_a_process_that_is_not_ready_is_alive(process: Process) -> None:
    process.reasons = ["no generation yet"]
    assert process.ask("/healthz")[0] == 200


def test_other_paths_and_methods_are_refused(process: Process) -> None:
    status, answer = process.ask_json("/secret")
    assert status == 404
    assert answer == {"error": "nothing at /secret, there is /metrics, /healthz, /readyz"}
    assert process.ask("/healthz", "POST")[0] == 501


def test_head_has_no_body(process: Process) -> None:
    assert process.ask("/healthz", "HEAD") == (200, "application/json", b"")


@pytest.mark.parametrize("path", ["/metrics", "/readyz"])
def test_a_defect_is_an_answer_and_not_a_traceback(
    process: Process, path: str, capfd: pytest.CaptureFixture[str]
) -> None:
    process.defect = ValueError("seven")
    assert process.ask_json(path) == (503, {"error": f"{path} failed: ValueError: seven"})
    process.defect = None
    assert process.ask(path)[0] == 200
    assert capfd.readouterr() == ("", "")


def test_clients_that_talk_nonsense_or_leave_harm_nobody(process: Process, capfd: pytest.CaptureFixture[str]) -> None:
    for data in (b"", b"\x00\xff\r\n\r\n", b"GET /metrics HTTP/1.1\r\n\r\n", b"GET " + b"x" * 100_000):
        with socket.create_connection(("127.0.0.1", process.health.port)) as connection:
            connection.sendall(data)
    with socket.create_connection(("127.0.0.1", process.health.port)):  # says nothing, and holds up nobody
        assert process.ask("/healthz")[0] == 200
    assert capfd.readouterr() == ("", "")


def test_probes_at_the_same_time(process: Process) -> None:
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(process.ask("/metrics")[0])) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [200] * 16


def test_a_port_that_is_taken_is_reported(process: Process) -> None:
    with pytest.raises(errors.Unavailable, match=f"cannot listen on 127.0.0.1, port {process.health.port}: Address"):
        Health("127.0.0.1", process.health.port, metrics=lambda: b"", reasons=list)


def test_nobody_listens_after_close() -> None:
    process = Process()
    process.health.close()
    with pytest.raises(OSError):
        process.ask("/healthz")
