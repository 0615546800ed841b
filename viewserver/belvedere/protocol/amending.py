"""Views that cannot be computed: who is to blame for failures, and plans without them.

    a view version, in an epoch:   fails ──in one attempt──▶ ACCUSED ──in BLAMED_AFTER attempts──▶ TO BLAME
                                     ▲                          │ the epoch is committed: all is forgotten
                                     └──────────────────────────┘
    an amendment:   TO BLAME ──catalogs made──▶ writing ──all documents durable──▶ proposed ──swap──▶ IN THE RECORD
                                 └──the epoch got through after all, or the leader is lost──▶ nobody's

A plan is never abandoned: an epoch that anybody has begun to write is finished. But it can be amended: another document
for the same epoch with the same input, and a catalog in which some views have failed. The record's pointers change in
the swap that begins the next generation.

Why it is safe:

1. An attempt is known by its generation, and a generation has one plan for each epoch: members that compute by the old
   plan are in an older generation, and whatever they send is dropped. What they may still write is, of views that go
   on, what the new attempt writes; of views that failed nobody reads it; of shared state it has parts more, under tags
   that those who are left do not ask for.
2. Nothing but the record and the documents that it points to is carried from leader to leader. Before the swap the
   epoch is as it was, and a successor counts failures anew. After it the epoch is amended for every successor.
3. Failures are counted by view version over all attempts of an epoch, however many views take turns at failing. So each
   amendment takes at least one view out, and an epoch is amended at most as often as there are views.
4. What fails on one member only is the member's: of the attempts that are counted one is made without it, where others
   can do its part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from belvedere.protocol import wire
from belvedere.protocol.driving import AmendCatalogs, CatalogsAmended, CoordinatorInstruction, Note, WriteDocument
from belvedere.protocol.epoch import Amendment, EpochBook, OpenEpoch
from belvedere.protocol.gc_documents import catalog_document, plan_document
from belvedere.protocol.messages import Attempt, Epoch, Failed, Pointer, ViewVersion
from belvedere.protocol.store_requests import Answer, Asking, Then

BLAMED_AFTER = 3
"""Attempts of an epoch in which a view failed."""


class Amendments:
    """Of one term."""

    def __init__(self, asking: Asking, term: int = 0) -> None:
        self._asking, self._term = asking, term
        self._attempts: dict[tuple[Epoch, ViewVersion], set[Attempt]] = {}
        self._reasons: dict[ViewVersion, str] = {}
        self.current: Amendment | None = None
        self.count = 0
        """Amendments that were begun in this term: documents of each have names of their own."""

    # ------------------------------------------------------------------ blame

    def failed(self, message: Failed, reason: str) -> bool:
        """Whether this is the first attempt of the epoch in which a view failed: the next one should be made without
        this member."""
        first = False
        for view in message.views:
            attempts = self._attempts.setdefault((message.epoch, view), set())
            first |= not attempts
            attempts.add(message.attempt)
            self._reasons[view] = reason
        return first

    def committed(self, epoch: Epoch) -> None:
        """It got through: what failed in it failed for another reason than the view."""
        self._attempts = {key: attempts for key, attempts in self._attempts.items() if key[0] > epoch}
        if self.current is not None and self.current.epoch <= epoch:
            self.current = None

    def _to_blame(self) -> tuple[Epoch, tuple[ViewVersion, ...]] | None:
        """The first epoch with views to blame, and all of these."""
        blamed = [key for key, attempts in self._attempts.items() if len(attempts) >= BLAMED_AFTER]
        if not blamed:
            return None
        first = min(epoch for epoch, _ in blamed)
        views = {view for epoch, view in blamed if epoch == first}
        return first, tuple(sorted(views, key=lambda view: (view.view_group, view.name)))

    # ------------------------------------------------------------------ the amendment

    @property
    def ready(self) -> Amendment | None:
        """The one whose documents are durable."""
        return self.current if self.current is not None and self.current.durable else None

    def begin(self, epochs: EpochBook, version: int) -> list[CoordinatorInstruction]:
        """If views are to blame: make plans without them. `version`: of the newest catalog in a plan."""
        blamed = self._to_blame()
        if self.current is not None or blamed is None or epochs.find(blamed[0]) is None:
            return []
        epoch, views = blamed
        self.count += 1
        amendment = self.current = Amendment(epoch, tuple((view, self._reasons[view]) for view in views))
        amended = [opened for opened in epochs.open if opened.plan.epoch >= epoch]
        documents = list(dict.fromkeys(opened.plan.catalog_document for opened in amended))
        # Versions grow with epochs: those of all amended plans come after every one that there is.
        catalogs = tuple((name, version + 1 + number) for number, name in enumerate(documents))
        building = tuple(sorted({part.view_group for opened in amended for part in opened.plan.slices}))
        names = [view.name for view in views]
        note = Note("amends", {"epoch": epoch, "views": names, "reason": amendment.views[0][1]})
        asked = self._asking.ask(
            lambda request: AmendCatalogs(request, epoch, amendment.views, catalogs, building),
            self._made(amendment, amended, documents),
        )
        return [note, *asked]

    def _made(self, amendment: Amendment, amended: Sequence[OpenEpoch], documents: Sequence[str]) -> Then:
        def made(event: Answer) -> list[CoordinatorInstruction]:
            assert isinstance(event, CatalogsAmended)
            if self.current is not amendment:
                return []
            if event.refused:
                self.current, self._attempts = None, {}
                return [Note("cannot amend", {"epoch": amendment.epoch, "reason": event.refused})]
            catalogs = dict(zip(documents, event.catalogs, strict=True))
            names = {old: catalog_document(new.version, self._term, f"a{self.count}") for old, new in catalogs.items()}
            to_write = {names[old]: new.document for old, new in catalogs.items()}
            plans = []
            for opened in amended:
                catalog, old = catalogs[opened.plan.catalog_document], opened.pointer
                plan = replace(
                    opened.plan,
                    catalog=catalog.version,
                    catalog_document=names[opened.plan.catalog_document],
                    stages=catalog.stages,
                    slices=tuple(part for part in opened.plan.slices if part.view_group in catalog.present),
                    amends=old.document,
                )
                data, name = wire.encode(plan), plan_document(plan.epoch, self._term, self.count)
                plans.append((plan, Pointer(plan.epoch, name, wire.digest(data), old.amendment + 1)))
                to_write[name] = data
            amendment.plans = tuple(plans)
            return self._write(amendment, to_write)

        return made

    def _write(self, amendment: Amendment, documents: dict[str, bytes]) -> list[CoordinatorInstruction]:
        waiting = set(documents)
        found: list[CoordinatorInstruction] = []
        for name, data in documents.items():

            def written(_: Answer, name: str = name) -> list[CoordinatorInstruction]:
                waiting.discard(name)
                amendment.durable = not waiting
                return []

            def write(request: int, name: str = name, data: bytes = data) -> CoordinatorInstruction:
                return WriteDocument(request, name, data)

            found += self._asking.ask(write, written)
        return found

    def accepted(self) -> None:
        """It is in the record: its views fail no more."""
        assert self.current is not None
        gone = {view for view, _ in self.current.views}
        self._attempts = {key: attempts for key, attempts in self._attempts.items() if key[1] not in gone}
        self.current = None
