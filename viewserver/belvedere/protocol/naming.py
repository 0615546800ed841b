"""No epoch is committed behind one from which on names mean something else, before that one is published.

    settled ──a commit with another catalog, or a build that is complete──▶ unpublished ──Published──▶ settled
                 (and at every takeover: the predecessor may not have come to it)

Why: readers find what a name means at an epoch in the newest published epoch up to it, and a leader publishes for a
predecessor only the epoch that the record names as committed. If another commit followed, the first one of the new
names would never be published, and who resumes exactly there would be told of the replacement once more, or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from belvedere.protocol.epoch import OpenEpoch
from belvedere.protocol.messages import Epoch, EpochPlan
from belvedere.protocol.ring import BUCKETS

Names: TypeAlias = tuple[str, tuple[int, ...]]


def names_of(plan: EpochPlan) -> Names:
    """What decides what names mean at an epoch: the catalog, and which view groups of it are not complete."""
    return plan.catalog_document, tuple(part.view_group for part in plan.slices if part.stop < BUCKETS)


class Naming:
    """Of one term."""

    def __init__(self) -> None:
        self.unpublished: Epoch | None = None
        """The committed epoch that has to be published first."""
        self._names: Names | None = None

    def restore(self, plan: EpochPlan) -> None:
        """The last committed one; nobody knows whether it was published."""
        self._names, self.unpublished = names_of(plan), plan.epoch

    def may_commit(self, ready: Sequence[OpenEpoch]) -> Sequence[OpenEpoch]:
        """Of those that are ready, in their order: up to the first one with other names."""
        if self.unpublished is not None:
            return []
        turns = (i for i, epoch in enumerate(ready) if names_of(epoch.plan) != self._names)
        return ready[: next(turns, len(ready)) + 1]

    def committed(self, plan: EpochPlan) -> None:
        if names_of(plan) != self._names:
            self._names, self.unpublished = names_of(plan), plan.epoch

    def published(self, epoch: Epoch) -> None:
        if self.unpublished is not None and epoch >= self.unpublished:
            self.unpublished = None
