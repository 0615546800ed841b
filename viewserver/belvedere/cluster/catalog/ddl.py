"""Changes of the catalog, on the leader: from a client's statement to a plan that names the new catalog.

    Ddl ──document of the newest catalog──▶ changed document ──CatalogOffered──▶ machine ──CatalogTaken──▶ Taken
             ▲                                                                       │ refused: another one came first
             └───────────────────────────────────────────────────────────────────────┘

One change at a time. Base tables exist in the store before anybody can write to them and after the catalog has them:
they are made when the catalog was taken, and made again (which changes nothing) by a leader that takes over in between.
When a build is complete, versions of views that it replaces are dropped with another change, and view groups whose
state the engine of the pool cannot read are rebuilt one after the other (`look_after`).
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from belvedere import errors
from belvedere.backend.seam import Documents
from belvedere.cluster.catalog import catalogs
from belvedere.cluster.catalog.aside import decide
from belvedere.cluster.process.next_engine import engines_of
from belvedere.cluster.roles.base_tables import adjust
from belvedere.cluster.transport import calls
from belvedere.protocol.driving import AmendCatalogs, AmendedCatalog, CatalogOffered, CatalogsAmended, CatalogTaken
from belvedere.protocol.messages import ASIDE, Epoch
from belvedere.retry import Backoff, Deadline
from belvedere.sql.manifest_target import Target

if TYPE_CHECKING:
    from belvedere.cluster.roles.coordinator import CoordinatorMember

TAKEN_SECONDS = 30.0
TRIES = 8
POLL_SECONDS = 0.05


def change_catalog(
    document: bytes, request: calls.DdlCall, building: Collection[int], target: Target, engine: int = 0
) -> bytes | None:
    """The catalog after the request, or None if there is nothing to change. Raises what the client is to be told.
    `engine`: that of the pool.

    A catalog is offered to the machine and `Taken` at the epoch of `CatalogTaken`, with the view groups
    `catalogs.compile(changed).made`. None (it may have happened before) is `Taken` at the newest epoch that is planned,
    with all view groups in `building`."""
    if catalogs.has_ticket(document, request.ticket):
        return None
    if request.rebuild:
        return catalogs.with_ticket(catalogs.rebuild_view(document, request.text, engine), request.ticket)
    carry_out = catalogs.apply_manifest if request.manifest else catalogs.execute
    changed = carry_out(document, request.text, building, target, engine)
    return None if changed is None else catalogs.with_ticket(changed, request.ticket)


def amended_catalogs(store: Documents, wanted: AmendCatalogs) -> CatalogsAmended:
    """The answer for the machine; raises if a document cannot be read now."""
    failed = {(view.name, view.view_group): reason for view, reason in wanted.views}
    made = []
    for name, version in wanted.catalogs:
        document = store.get_document(name)
        if document is None:
            raise errors.StoreUnavailable(f"document {name!r} is not in the store, a plan needs it")
        try:
            changed = catalogs.fail(document, failed, wanted.building, wanted.epoch, version)
        except errors.CatalogError as error:
            return CatalogsAmended(wanted.request, (), str(error))
        compiled = catalogs.compile(changed)
        present = tuple(view_group.number for view_group in compiled.view_groups)
        made.append(AmendedCatalog(version, changed, compiled.stages, present))
    return CatalogsAmended(wanted.request, tuple(made))


class CatalogService:
    def __init__(self, member: CoordinatorMember) -> None:
        self._member = member
        self._one_at_a_time = threading.Lock()
        self._tickets = itertools.count(1)
        self._answered = threading.Condition()
        self._answers: dict[int, CatalogTaken] = {}
        self._closed = False
        options = member.options
        follows = member.around.follower is not None
        self._rebuilding = engines_of(*options.engines).rebuilding
        self._target = Target(options.pool, int(options.retention * 1000), follows)

    # ------------------------------------------------------------------ calls (threads of the transport)

    def change(self, request: calls.DdlCall) -> calls.Taken:
        """Carry out what a client asks for; returns when the change is in a plan."""
        with self._one_at_a_time:
            refused, pauses = "", Backoff()
            for _ in range(TRIES):
                document, building = self._newest()
                changed = change_catalog(document, request, building, self._target, self._engine())
                if changed is None:
                    return self._unchanged(document, building)
                member = self._member
                changed = decide(changed, member.around.store, member.clock.now(), member.in_loop(self._takes_over))
                taken = self._offer(changed, self._announce(document, changed))
                if not taken.refused:
                    return self._taken(changed, taken.epoch)
                refused = taken.refused
                time.sleep(pauses.next())  # another change is on its way into a plan
            raise errors.PeerUnavailable(f"the catalog could not be changed: {refused}")

    def newest(self) -> bytes:
        """The catalog of the newest plan."""
        return self._newest()[0]

    def look_after(self) -> None:
        """When nothing is being built: drop versions of views that are replaced by complete ones; else begin to rebuild
        views whose state the engine of the pool cannot read. (From a worker, now and then.)"""
        with self._one_at_a_time:
            document, building = self._newest()
            if building:  # since it was asked for; it is again when nothing is
                return
            complete = {view_group.number for view_group in catalogs.compile(document).view_groups}
            changed = catalogs.retire(document, complete)
            if changed is None:
                changed = catalogs.rebuild(document, self._engine(), self._rebuilding)
            if changed is not None:
                taken = self._offer(changed)
                if taken.refused:
                    raise errors.PeerUnavailable(taken.refused)

    def _engine(self) -> int:
        """That of the pool. State of what is made now is never in a newer form; so it has to be known."""
        deadline = Deadline(TAKEN_SECONDS)
        while not (engine := int(self._member.in_loop(self._leaders_engine))):
            if deadline.over or self._closed:
                raise errors.PeerUnavailable(
                    f"the catalog cannot be changed: no view server and no distributor came within {TAKEN_SECONDS:g} s"
                )
            time.sleep(POLL_SECONDS)
        return engine

    def _leaders_engine(self) -> int:
        self._member.require_lead()
        return self._member.machine.engine

    def _newest(self) -> tuple[bytes, tuple[int, ...]]:
        member = self._member
        version, name, building = member.in_loop(self._leaders_catalog)
        if version == 0:
            return catalogs.empty(), building
        document = member.around.store.get_document(name)
        if document is None:
            # Or a successor has removed it, and this one has not heard of it yet: whoever asks will ask that one then.
            raise errors.PeerUnavailable(f"document {name!r} is not in the store, the newest plan needs it")
        return document, building

    def _leaders_catalog(self) -> tuple[int, str, tuple[int, ...]]:
        """In the loop: whoever has just lost the lead has forgotten all of it."""
        self._member.require_lead()
        return self._member.machine.catalog

    def _announce(self, before: bytes, changed: bytes) -> bool:
        """Tables of another system are looked at before the catalog has them, or more columns of them. Whether there
        are such."""
        follower = self._member.around.follower
        if follower is None:
            return False
        known = {table.stored.name: table.stored for table in catalogs.compile(before).tables.values()}
        tables = [table.stored for table in catalogs.compile(changed).tables.values()]
        fresh = [table for table in tables if table.name not in known or table.columns != known[table.name].columns]
        for table in fresh:
            follower.announce(table)
        if fresh:
            self._member.loads_more()
        return bool(fresh)

    def _offer(self, document: bytes, loads: bool = False) -> CatalogTaken:
        compiled = catalogs.compile(document)
        ticket = next(self._tickets)
        present = tuple(view_group.number for view_group in compiled.shard.view_groups)
        groups = {group.number: group for group in compiled.view_groups}
        offered = CatalogOffered(
            ticket,
            compiled.version,
            document,
            compiled.stages,
            compiled.made,
            present,
            loads,
            compiled.engines,
            compiled.aside,
            tuple((number, tuple(sorted(groups[number].below))) for number in compiled.made),
        )
        self._member.loop.post(lambda: self._member.tell(offered))
        with self._answered:
            self._answered.wait_for(lambda: ticket in self._answers or self._closed, TAKEN_SECONDS)
            taken = self._answers.pop(ticket, None)
        if taken is None:
            raise errors.PeerUnavailable(
                f"the change of the catalog is in no plan after {TAKEN_SECONDS:g} s; it may still come: ask again"
            )
        return taken

    def _unchanged(self, document: bytes, building: tuple[int, ...]) -> calls.Taken:
        self._adjust(document)
        last: Epoch = self._member.in_loop(self._leaders_last)
        return calls.Taken(last, catalogs.version(document), building, self._waiting(document, building))

    def _takes_over(self) -> bool:
        """Whether all members know what it means that a view group is computed aside."""
        generation = self._member.machine.epochs.generation
        return generation is not None and generation.protocol >= ASIDE

    def _leaders_last(self) -> Epoch:
        self._member.require_lead()
        return self._member.machine.epochs.last

    def _taken(self, document: bytes, epoch: Epoch) -> calls.Taken:
        self._adjust(document)
        compiled = catalogs.compile(document)
        return calls.Taken(epoch, compiled.version, compiled.made, self._waiting(document, compiled.made))

    def _waiting(self, document: bytes, building: Collection[int]) -> tuple[int, ...]:
        """Those that wait for somebody else: to compute them, or what they read."""
        compiled = catalogs.compile(document)
        awaited = set(self._member.in_loop(lambda: self._member.machine.awaited)) | set(compiled.aside)
        groups = [group for group in compiled.view_groups if group.number in building]
        return tuple(group.number for group in groups if awaited & {group.number, *group.below})

    def repair(self) -> None:
        """A new leader does what its predecessor may not have come to. (From a worker.)"""
        with self._one_at_a_time:
            document = self._newest()[0]
            self._adjust(document)
        for view in catalogs.compile(document).catalog.views.values():
            why = self._target.too_short_for(view)  # it was not when the view was created
            if why is not None:
                self._member.log.warning("history is kept for less time than a view asks for", reason="; ".join(why))

    def _adjust(self, document: bytes) -> None:
        base = self._member.around.base
        if base is not None:
            adjust(base, document)
        follower = self._member.around.follower
        if follower is not None:
            follower.recall([table.stored.name for table in catalogs.compile(document).tables.values()])

    # ------------------------------------------------------------------ the loop

    def taken(self, taken: CatalogTaken) -> None:
        with self._answered:
            self._answers[taken.ticket] = taken
            self._answered.notify_all()

    def close(self) -> None:
        with self._answered:
            self._closed = True
            self._answered.notify_all()
