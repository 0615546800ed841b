"""New versions of views that are tried before they take their place (`verify.changes`).

    BUILD ──the trial can be read──▶ VERIFY ──no row differs──▶ TAKE
                                        └──rows differ, or it cannot be verified──▶ REFUSE

The changed query becomes a view of its own beside the one in service, and a Job recomputes it at one epoch. If no row
differs, the query takes its place; that costs little, since the two share their state. The name of a trial contains
the digest of the text: a text that changes meanwhile is another trial, and a restarted operator finds its own again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from belvedere_operator.api.materialized_view import MaterializedViewSpec
from belvedere_operator.decide.items import Item
from belvedere_operator.gateway import PoolFigures, ViewFigures

MARK = "__next_"
DIGITS = 8
FAILED = "VerificationFailed"
MOST_OF_NAME = 200
"""A name of 255 characters leaves no room for the mark."""


class Step(StrEnum):
    BUILD = "Build"
    VERIFY = "Verify"
    TAKE = "Take"
    REFUSE = "Refuse"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the verification of a trial has found."""

    good: bool
    message: str


def digest_of(item: Item) -> str:
    return item.digest()[:DIGITS]


def trial_name(item: Item) -> str:
    """In SQL."""
    return f"{item.sql_name[:MOST_OF_NAME]}{MARK}{digest_of(item)}"


def trial_of(item: Item) -> Item:
    """The view that is tried: the item under the name of its trial."""
    return replace(item, sql_name=trial_name(item))


def is_asked_for(item: Item) -> bool:
    """Whether a change of the view is to be tried, and there is one."""
    return may_be_there(item) and not item.suspended and item.deleting is None


def may_be_there(item: Item) -> bool:
    """Whether the pool may have a trial of the view."""
    spec = item.spec
    if not isinstance(spec, MaterializedViewSpec) or spec.verify is None or not spec.verify.changes:
        return False
    return item.status.applied not in (None, item.digest())


def has_version_in_service(item: Item, figures: PoolFigures) -> bool:
    """Of a view that failed, or is not there, there is nothing to protect: its new text is applied at once."""
    told = figures.view(item.sql_name)
    return told is not None and told.state == "Ready"


def next_step(trial: ViewFigures | None, verdict: Verdict | None) -> Step:
    if verdict is not None:
        return Step.TAKE if verdict.good else Step.REFUSE
    return Step.VERIFY if trial is not None and trial.state == "Ready" and trial.progress is None else Step.BUILD


def abandoned(figures: PoolFigures, holders: Mapping[str, Item], wanted: set[str]) -> list[str]:
    """Trials of our views that nobody waits for any more."""
    names = [name for name in figures.views if MARK in name and name not in wanted]
    prefixes = {item.sql_name[:MOST_OF_NAME].lower() for item in holders.values()}
    return [name for name in names if name.rpartition(MARK)[0].lower() in prefixes]
