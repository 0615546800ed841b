"""The simulator has teeth: whichever rule is switched off, the judge soon finds a history wrong for that reason."""

from __future__ import annotations

import re

import pytest

from tests.simulator import bugs, failing, repairing, runner

SEEDS = 200
FIRST = {
    "cache kept after losing a bucket": 430,
    "late computation written": 170,
    "markers of another attempt accepted": 80,
    "tombstones collected early": 30,
    "cache of the owner survives a repair": 10,
}
"""Where to begin, if that saves many histories: the engine mostly notices before the judge can."""

_VIEW = "is wrong in the store|read view|answered a read of view|was written as"
_STUCK = "not drained"

THEMES = {
    "late computation written": "late computation",
    "full disk blamed on a view": failing.THEME,
    "view set aside at its first failure": failing.THEME,
    "plan amended beside the record": failing.THEME,
    "epochs after an amended one left as they are": failing.THEME,
    "state taken to be in the form of the pool's engine": "versions",
    "row that changed since it was looked at replaced all the same": repairing.THEME,
    "repair applied twice": repairing.THEME,
    "cache of the owner survives a repair": repairing.THEME,
    "repair sent through the DAG": repairing.THEME,
}
"""Bugs that need so much at once that they are looked for in histories of their theme."""

SYMPTOMS = {
    "acknowledge before INPUT is durable": f"not committed to its end|{_VIEW}",
    "no wait for markers": _VIEW,
    "markers of another attempt accepted": _VIEW,
    "no duplicate filter": "a piece takes|its pieces lead to",
    "commit without fencing": "of the record went back|is given up|is committed, open were|both lead in term",
    "unknown compare-and-set taken as failure": "is given up",
    "cache kept after losing a bucket": _VIEW,
    "caches not undone after a failed attempt": _VIEW,
    "reads served by a former owner": "read view|answered a read of view",
    "withdraw without drain": f"{_VIEW}|{_STUCK}|is released, and has a part in generation",
    "plan from reports instead of INPUT": _STUCK,
    "plan not durable before work": "the record points to the plan of epoch",
    "late computation written": _VIEW,
    "tombstones collected early": _VIEW,
    "wrong tie rule": _VIEW,
    "ties by arrival": _VIEW,
    "bounded queue inside an epoch": _STUCK,
    "full disk blamed on a view": "is set aside since epoch",
    "view set aside at its first failure": "is set aside since epoch .*, where it failed in [12] attempts",
    "plan amended beside the record": "is committed, open were|is given up",
    "epochs after an amended one left as they are": "after it is not|is older than that of epoch",
    "state taken to be in the form of the pool's engine": _STUCK,
    "row that changed since it was looked at replaced all the same": _VIEW,
    "repair applied twice": _VIEW,
    "cache of the owner survives a repair": _VIEW,
    "repair sent through the DAG": _VIEW,
    "view group computed aside taken as it is": _VIEW,
    "view group computed aside taken in twice": _VIEW,
    "horizon passes what a build reads": _STUCK,
}
"""What the judge says of each. That anything at all raises is not enough: a bug that is out of date would raise too."""


@pytest.mark.parametrize("bug", SYMPTOMS)
def test_a_known_bug_is_caught(bug: str) -> None:
    raised = []
    theme = THEMES.get(bug)
    first = FIRST.get(bug, 0)
    for seed in range(first, first + SEEDS):
        caught = runner.run(seed, bug, theme=theme)
        if caught.judged:
            break
        raised += [caught.wrong] if caught.wrong else []  # the engine noticed it before the judge could
    else:
        raise AssertionError(f"{bug}: {SEEDS} histories and the judge finds nothing wrong; raised was {raised}")
    assert re.search(SYMPTOMS[bug], caught.wrong), f"{bug} shows as something else: {caught.wrong}"
    assert not runner.run(caught.seed, theme=theme).wrong, "the same history without the bug must be right"


def test_all_rules_have_a_bug() -> None:
    assert set(bugs.BUGS) == set(SYMPTOMS)


def test_a_bug_that_is_out_of_date_is_not_taken_for_one_that_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(*_: object) -> None:
        raise AttributeError("there is no such thing any more")

    monkeypatch.setitem(bugs.BUGS, "stale", lambda: [(runner.History, "_draw_catalog", stale)])
    outcome = runner.run(0, "stale")
    assert outcome.wrong.startswith("AttributeError") and not outcome.judged
