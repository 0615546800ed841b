"""Conditions: one statement about a resource each, in Kubernetes' own form, and how a list of them is changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from belvedere_operator.api.fields import prop


class Truth(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Condition:
    """A statement about the resource: whether it is true, since when, and why."""

    type: str = prop("What the statement is about, such as Ready.", required=True, maxLength=316)
    status: str = prop("True, False or Unknown.", required=True, enum=["True", "False", "Unknown"])
    reason: str = prop("One word, for programs.", required=True, minLength=1, maxLength=1024)
    message: str = prop("A sentence, for people.", required=True, maxLength=32768)
    last_transition_time: str = prop("Since when the status is what it is.", required=True, format="date-time")
    observed_generation: int | None = prop("The generation of the resource that the statement is about.", minimum=0)


@dataclass(frozen=True, slots=True)
class Said:
    """What is found now, before it has a time."""

    type: str
    status: Truth
    reason: str
    message: str


def yes(type: str, reason: str, message: str) -> Said:
    return Said(type, Truth.TRUE, reason, message)


def no(type: str, reason: str, message: str) -> Said:
    return Said(type, Truth.FALSE, reason, message)


def unknown(type: str, reason: str, message: str) -> Said:
    return Said(type, Truth.UNKNOWN, reason, message)


def merged(before: Iterable[Condition], said: Iterable[Said], generation: int, now: str) -> tuple[Condition, ...]:
    """The conditions of before with what was found: the time changes only with the status; others stay."""
    found: dict[str, Condition] = {one.type: one for one in before}
    for one in said:
        new = Condition(one.type, one.status.value, one.reason, one.message[:32768], now, generation)
        old = found.get(one.type)
        if old is not None and old.status == new.status:
            new = replace(new, last_transition_time=old.last_transition_time)
        found[one.type] = new
    return tuple(found.values())


def status_of(conditions: Iterable[Condition], type: str) -> str | None:
    return next((one.status for one in conditions if one.type == type), None)


def by_type(conditions: Iterable[Condition]) -> Mapping[str, Condition]:
    return {one.type: one for one in conditions}
