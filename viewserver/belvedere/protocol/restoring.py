"""What a new leader finds: the plans that the record points to, read and compared with their digests."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from belvedere.protocol import wire
from belvedere.protocol.driving import CoordinatorInstruction, DocumentRead, ReadDocument
from belvedere.protocol.messages import EpochPlan, Pointer
from belvedere.protocol.store_requests import Answer, Asking, Then

Plans: TypeAlias = Mapping[str, EpochPlan]
"""By the names of their documents."""


def read_plans(
    asking: Asking,
    pointers: Sequence[Pointer],
    then: Callable[[Plans], list[CoordinatorInstruction]],
    damaged: Callable[[str], list[CoordinatorInstruction]],
) -> list[CoordinatorInstruction]:
    """`then` with all of them, or `damaged` with the reason."""
    plans: dict[str, EpochPlan] = {}

    def reader(pointer: Pointer) -> Then:
        def read(event: Answer) -> list[CoordinatorInstruction]:
            assert isinstance(event, DocumentRead)
            if event.data is None or wire.digest(event.data) != pointer.digest:
                # Damage, or a successor has removed it rightly since. Whoever leads next reads the record anew.
                what = "is missing" if event.data is None else "has another digest than the record says"
                return damaged(f"plan of epoch {pointer.epoch}: document {pointer.document!r} {what}")
            plan = wire.decode(event.data)
            assert isinstance(plan, EpochPlan)
            plans[pointer.document] = plan
            return then(plans) if len(plans) == len(pointers) else []

        return read

    found: list[CoordinatorInstruction] = []
    for pointer in pointers:
        found += asking.ask(functools.partial(ReadDocument, name=pointer.document), reader(pointer))
    return found if pointers else then(plans)
