"""What single members must never decide, whatever comes of it: checked at the moment at which they do.

Much of what a member does wrong is mended by others, at the cost of time, or shows only if a reader looks in the right
place; it is wrong all the same. None of this knows why a member decides something.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from belvedere.protocol.coordinator import Coordinator, CoordinatorPhase
from belvedere.protocol.driving import Send
from belvedere.protocol.failure_detector import MOST_DOUBLINGS
from belvedere.protocol.messages import Attempt, Done, Epoch, Failed, Released, Sent
from belvedere.protocol.ring import MemberId
from tests.simulator.oracle import Wrong


def check_reports(member: MemberId, attempt: Attempt, instructions: Sequence[Any]) -> None:
    """What a member reports is of the attempt in which it takes part."""
    for instruction in instructions:
        if isinstance(instruction, Send) and isinstance(instruction.message, Sent | Done | Failed):
            reported = instruction.message.attempt
            if reported != attempt:
                raise Wrong(f"{member} takes part in attempt {attempt} and reports for attempt {reported}")


def check_releases(machine: Coordinator, instructions: Sequence[Any]) -> None:
    """Who is released has no part in the present generation."""
    for instruction in instructions:
        if isinstance(instruction, Send) and isinstance(instruction.message, Released):
            generation, member = machine.epochs.generation, instruction.message.member
            if generation is not None and member in (*generation.servers, *generation.distributors):
                raise Wrong(f"{member} is released, and has a part in generation {generation.number}")


def check_failure_detector(machine: Coordinator, quiet_ms: int) -> None:
    """After a tick, a leader that may propose something has proposed another generation, if one is overdue: an attempt
    has failed and its pause is over, or nobody has said anything for longer than silence is borne."""
    if machine.phase is not CoordinatorPhase.LEADING or not machine.leadership.acting or machine._proposal is not None:
        return
    patience, now = machine.failure_detector, machine._now
    if patience._retry_at is not None and patience._retry_at <= now and machine._amendments.current is None:
        raise Wrong(f"{machine.me}: an attempt failed ({patience._reason}), and nobody tries it again")
    silence = now - patience._heard_at
    waits = any(not epoch.acknowledged for epoch in machine.epochs.open) and machine.epochs.staffed
    if waits and silence > quiet_ms << min(patience.silences, MOST_DOUBLINGS):
        raise Wrong(
            f"{machine.me}: nothing was heard for {silence} ms, and nobody goes on without those who are silent"
        )


def check_acknowledged(machine: Coordinator, committed: Epoch, generation: Attempt) -> None:
    """An epoch is committed by those who take part in the generation that the record named until then."""
    epoch = machine.epochs.find(committed)
    if epoch is not None and epoch.barrier is not None and epoch.barrier.attempt != generation:
        raise Wrong(
            f"epoch {committed} is committed in generation {generation} with what was acknowledged in "
            f"generation {epoch.barrier.attempt}"
        )
