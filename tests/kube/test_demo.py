"""What `make kube-demo` shows; the steps that it goes are those of the end-to-end tests."""

from __future__ import annotations

import io
import re

from tests.kube.demo import Told, drawn


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


POOL = {
    "spec": {"replicas": 3},
    "status": {"scaling": {"explanation": "lag 4.0 s of 2 s, 1 view servers 98% busy of 30%; 3 needed"}},
}
CONDITIONS = [{"type": "Ready", "status": "True"}, {"type": "Fresh", "status": "False"}]
VIEW = {"metadata": {"name": "spend"}, "status": {"rows": 200, "lag": "4s", "conditions": CONDITIONS}}


def test_the_picture_has_the_pool_the_reason_and_every_view() -> None:
    assert drawn(POOL, 2, [VIEW, {"metadata": {"name": "new"}}]) == [
        "view servers  ██░  2 of 3",
        "              lag 4.0 s of 2 s, 1 view servers 98% busy of 30%; 3 needed",
        "spend         ready, behind,    200 rows, lag 4s",
        "new           not ready, behind,      ? rows, lag ?",
    ]
    assert drawn({"spec": {}}, 0, []) == ["view servers  ░░░  0 of 1"]


def test_a_terminal_has_what_happened_above_and_one_picture_below() -> None:
    out = Terminal()
    told = Told(out)
    told.show(["a", "b"])
    told.show(["c"])
    told.say("done")
    told.say("twice")
    shown = re.sub(r"[ 0-9.]+ s  ", "", out.getvalue().replace("          ", ""))
    assert shown == "a\nb\n\x1b[2F\x1b[Jc\n\x1b[1F\x1b[Jdone\ntwice\n"


def test_elsewhere_each_change_of_the_number_is_a_line() -> None:
    out = io.StringIO()
    told = Told(out)
    for picture in (["1 of 1", "lag 1 s"], ["1 of 1", "lag 2 s"], ["1 of 3"]):
        told.show(picture)
    assert [line.partition(" s  ")[2] for line in out.getvalue().splitlines()] == ["1 of 1", "1 of 3"]
