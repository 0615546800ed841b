"""Lines that programs and people can read; not too many of them, and no secrets in them."""

from __future__ import annotations

import io
import json
import logging
import math
import threading
from typing import Any

import numpy as np
import pytest

from belvedere import errors
from belvedere.cluster.process import logs


class Time:
    def __init__(self) -> None:
        self.now = 1_700_000_000.456

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Output:
    def __init__(self, form: logs.Form | None = None, level: logs.Level = "info", stream: io.StringIO | None = None):
        self.stream = io.StringIO() if stream is None else stream
        self.clock = Time()
        self.log = logs.get(
            "default", "viewserver", "vs-2", stream=self.stream, form=form, level=level, clock=self.clock
        )

    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line, parse_constant=pytest.fail) for line in self.lines()]


def test_a_json_line_has_who_when_and_what_in_this_order() -> None:
    output = Output()
    output.log.info("committed", rows=1_204, epoch=1_700_000_000_123)
    assert output.lines() == [
        '{"time":"2023-11-14T22:13:20.456Z","level":"info","pool":"default","role":"viewserver","member":"vs-2",'
        '"epoch":1700000000123,"event":"committed","rows":1204}'
    ]


def test_a_terminal_gets_lines_for_people() -> None:
    output = Output(stream=Terminal())
    output.log.bind(epoch=7).warning("peer unreachable", peer="vs 1", reason='said "no"', tries=3, since=None)
    assert output.lines() == [
        '22:13:20.456 warning viewserver vs-2  peer unreachable epoch=7 peer="vs 1" reason="said \\"no\\"" tries=3 '
        "since=null"
    ]


def test_a_line_is_one_line_whatever_it_holds() -> None:
    for form in ("json", "text"):
        output = Output(form)  # type: ignore[arg-type]  # a literal in a loop
        output.log.info("odd", text="two\nlines\r\x00", surrogate="\ud800", list=["a\nb"])
        assert len(output.stream.getvalue().split("\n")) == 2


def test_values_of_all_kinds() -> None:
    output = Output()
    output.log.info(
        "kinds",
        none=None,
        flag=True,
        number=np.int64(5),
        real=np.float32(0.5),
        nan=math.nan,
        error=errors.NotYet("view is behind", 3),
        defect=ValueError("seven"),
        table={"a": 1, 2: (3, "x")},
        other=logs.Log,
    )
    (record,) = output.records()
    assert record["number"] == 5 and record["real"] == 0.5 and record["nan"] == "nan" and record["flag"] is True
    assert record["none"] is None
    assert record["error"] == "view is behind"
    assert record["defect"] == "ValueError: seven"
    assert record["table"] == {"a": 1, "2": [3, "x"]}


def test_fields_cannot_take_the_names_of_the_line() -> None:
    output = Output()
    output.log.info("joined", member="vs-9", event="x", level="y", time="z", pool="p", role="r")
    (record,) = output.records()
    assert record["member"] == "vs-2" and record["member_"] == "vs-9"
    assert record["event"] == "joined" and record["event_"] == "x"
    assert record["level"] == "info"


def test_levels_below_the_chosen_one_are_left_out() -> None:
    output = Output(level="warning")
    output.log.debug("a")
    output.log.info("b")
    output.log.warning("c")
    output.log.error("d")
    assert [record["event"] for record in output.records()] == ["c", "d"]


def test_secrets_are_masked() -> None:
    output = Output()
    output.log.bind(api_key="k1").info(
        "connect",
        password="p1",
        authToken="t1",
        options={"client_secret": "s1", "host": "h"},
        address="zk://user:p2@zk-1:2181/path",
        error=OSError("cannot reach http://admin:p3@host/"),
    )
    text = output.stream.getvalue()
    for secret in ("k1", "p1", "t1", "s1", "p2", "p3"):
        assert secret not in text
    assert "zk://***@zk-1:2181/path" in text


def test_repeats_are_counted_instead_of_written() -> None:
    output = Output()
    for n in range(500):
        output.log.warning("peer unreachable", peer="vs-1", tries=n)
    output.log.warning("peer unreachable", peer="vs-7", tries=0)
    assert [record["tries"] for record in output.records()] == [*range(logs.BURST), 0]
    output.clock.now += logs.WINDOW + 1
    output.log.info("something else")
    counted, other = output.records()[-2:]
    assert counted["peer"] == "vs-1" and counted["repeated"] == 490 and counted["tries"] == 499
    assert other["event"] == "something else"
    output.log.warning("peer unreachable", peer="vs-1", tries=500)
    assert output.records()[-1]["tries"] == 500


def test_people_read_how_often_it_was_repeated() -> None:
    output = Output("text")
    for _ in range(logs.BURST + 4):
        output.log.warning("slow")
    output.log.flush()
    assert output.lines()[-1] == "22:13:20.456 warning viewserver vs-2  slow (repeated 4 times)"
    output.log.flush()
    assert len(output.lines()) == logs.BURST + 1


def test_many_different_events_do_not_fill_the_memory() -> None:
    output = Output()
    for n in range(3 * logs.REMEMBERED):
        output.log.info("event", name=str(n))
    assert len(output.lines()) == 3 * logs.REMEMBERED
    assert len(output.log._sink._repeats) <= logs.REMEMBERED


def test_an_error_on_purpose_has_a_reason_and_a_defect_a_place() -> None:
    output = Output()
    output.log.failure("stage failed", errors.Damaged("chunk 7"), view="spend")
    try:
        json.loads("{")
    except ValueError as defect:
        output.log.failure("stage failed", defect, view="spend")
    expected, unexpected = output.records()
    assert expected["error"] == "chunk 7" and "where" not in expected
    assert unexpected["error"].startswith("JSONDecodeError: ") and "raw_decode" in unexpected["where"]


def test_logging_never_raises() -> None:
    class Unprintable:
        def __str__(self) -> str:
            raise RuntimeError

    output = Output()
    output.log.info("odd", value=Unprintable())
    assert output.records()[0]["value"] == "<Unprintable>"
    output.stream.close()
    output.log.info("after the end")


def test_libraries_speak_through_the_log() -> None:
    output = Output()
    logger = logging.getLogger("belvedere.test.library")
    output.log.adopt("belvedere.test.library")
    logger.info("not worth it")
    logger.warning("connection %s dropped", "c1")
    logger.error("broken %d", "format")
    assert [(record["level"], record["event"], record["text"]) for record in output.records()] == [
        ("warning", "belvedere.test.library", "connection c1 dropped"),
        ("error", "belvedere.test.library", "broken %d"),
    ]


def test_lines_of_threads_are_not_mixed() -> None:
    output = Output()

    def write(name: str) -> None:
        for n in range(200):
            output.log.info("event", name=f"{name}{n}")

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({record["name"] for record in output.records()}) == 800
