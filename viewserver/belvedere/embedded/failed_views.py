"""Views that cannot be computed: they are taken out of service, and the others go on with the same epoch.

    step fails in an operator ──▶ state of all others made anew from base rows ──▶ `fail_views` in the log ──▶ the epoch
                                                                                                        is committed

A step that stops in the middle leaves operators that are worth nothing; base rows have all of it before any operator
runs. `fail_views` names the views and the first record of the batch in which they failed. Replay reads these operations
before it begins and takes the views out in front of that record, so it does not meet the failure again, whether or not
it would happen. A crash before the operation is durable leaves nothing of it: the batch is tried again.

A failure counts against views if it is one of computation (`is_of_computation`); any other stops the database, as it
always did. A view that is being built and fails is not created, as if its build had failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from belvedere.embedded.builds import RefusedView, StaleRows, Unbuilt, no_room
from belvedere.embedded.fresh import compute
from belvedere.embedded.storage.commit import Group
from belvedere.embedded.storage.files import Files
from belvedere.embedded.storage.tail import Gone, LogTail
from belvedere.embedded.storage.views import ViewTable, difference
from belvedere.engine.delta import Delta
from belvedere.engine.engine import ViewsFailed
from belvedere.errors import DiskError
from belvedere.model import ddl
from belvedere.model.describe import ViewShape
from belvedere.plan.nodes import ViewNode

if TYPE_CHECKING:
    from belvedere.embedded.runtime import Runtime

LONGEST_REASON = 2000
NEWEST = 1 << 62
_HEAD = b'{"entries":[{"k":"ddl","op":"fail_views"'


class FailedViews:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._late: list[ddl.Operation] = []
        """What failed while the log was replayed, and is not in it."""
        self._ahead: dict[int, list[ddl.Operation]] = {}
        """Operations that the log has, by the record in front of which they count."""
        self._extra: dict[str, Any] | None = None
        """For the history, with the next epoch."""

    # ------------------------------------------------------------------ a failure

    def set_aside(self, groups: Sequence[Group], failure: ViewsFailed) -> None:
        """The step of these groups failed: go through with it, without the views that are to blame."""
        builds, epoch = self._runtime.builds, groups[-1].epoch
        reasons: dict[str, str] = {}
        building, unbuilt = builds.current, None
        while True:
            self._blame(failure, reasons)
            if building is not None and set(building.nodes) & set(failure.views):
                unbuilt = failure.__cause__ or failure
            try:
                fresh = self._made_anew([node for name, node in builds.nodes.items() if name not in reasons])
                break
            except ViewsFailed as again:
                failure = again
        builds.current = None
        if reasons:
            views = [[name, reason] for name, reason in reasons.items()]
            operation = {"op": "fail_views", "views": views, "first": groups[0].sequence, "epoch": epoch}
            self._announce(operation)
            self._take_out(operation, epoch)
        self._swap_in(epoch, fresh)
        if building is not None and unbuilt is None:
            builds.begin_again(epoch, building.operation, building.announced)
        elif building is not None:
            assert isinstance(unbuilt, Exception)
            builds.cannot_build(Unbuilt(building.operation, unbuilt))

    def _blame(self, failure: ViewsFailed, reasons: dict[str, str]) -> None:
        """Those that failed, and those that read them."""
        runtime = self._runtime
        serving = set(runtime.builds.nodes.values())
        for node in failure.views:
            if node in serving:
                reasons.setdefault(node.name, failure.reason[:LONGEST_REASON])
                for above in ddl.dependants(runtime.catalog, node.name):
                    reasons.setdefault(above.name, f"it reads view {node.name!r}, which failed: {failure.reason}")

    def _made_anew(self, nodes: Sequence[ViewNode]) -> dict[ViewNode, ViewTable]:
        """All operators and rows of these views, from base rows."""
        self._runtime.engine.restart()
        return compute(self._runtime, self._runtime.engine, nodes)

    def _swap_in(self, epoch: int, fresh: Mapping[ViewNode, ViewTable]) -> None:
        """The epoch is what turns the old rows into the new ones."""
        runtime = self._runtime
        if epoch > runtime.changelog.epoch:
            starts = [{**table.shape.to_json(), "since": table.since} for table in fresh.values()]
            runtime.record(
                epoch,
                self._differences(fresh),
                [(table.shape, part) for table in fresh.values() for part in table.quarantine_parts()],
                {**(self.take_extra() or {}), "starts": starts},
            )
        runtime.tables = {node.name: table for node, table in fresh.items()}
        runtime.publish(epoch)

    def _differences(self, fresh: Mapping[ViewNode, ViewTable]) -> Iterator[tuple[ViewShape, Delta]]:
        for node, table in fresh.items():
            for delta in difference(node.schema, self._runtime.tables[node.name], table):
                yield table.shape, delta

    def _take_out(self, operation: ddl.Operation, epoch: int) -> None:
        """Names, plan and rows of the views; the caller sees to operators."""
        runtime, builds = self._runtime, self._runtime.builds
        gone = {name: reason for name, reason in operation["views"] if name in builds.nodes}
        for name, reason in gone.items():
            value = ddl.view_json(runtime.catalog.views[name])
            builds.refused[name] = RefusedView(
                value, reason, operation["epoch"], StaleRows.of(runtime.tables[name], runtime.committed)
            )
            del builds.nodes[name]
        for name in gone:
            runtime.catalog = runtime.catalog.without(name)
        runtime.retire([runtime.tables[name] for name in gone], epoch)
        runtime.tables = {name: table for name, table in runtime.tables.items() if name not in gone}
        self._extra = {
            "drops": list(gone),
            "fails": {name: [reason, operation["epoch"]] for name, reason in gone.items()},
            "catalog": ddl.catalog_json(runtime.catalog),
        }

    def take_extra(self) -> dict[str, Any] | None:
        """What the history has to say with the epoch that is committed now."""
        extra, self._extra = self._extra, None
        return extra

    # ------------------------------------------------------------------ the log

    def _announce(self, operation: ddl.Operation) -> None:
        announce = self._runtime.builds.announce
        if announce is None:
            self._late.append(operation)
            return
        self._write(announce, operation)

    def _write(self, announce: Callable[[ddl.Operation], object], operation: ddl.Operation) -> None:
        while True:
            try:
                announce(operation)
            except DiskError as error:
                if not no_room(error.__cause__):
                    raise
                self._runtime.pause(f"the log cannot be written: {error}")
            else:
                self._runtime.waiting_for_room = None
                return

    def announce_late(self) -> None:
        """When the database is open: what failed in the replay is written down."""
        late, self._late = self._late, []
        for operation in late:
            assert self._runtime.builds.announce is not None
            self._write(self._runtime.builds.announce, operation)

    def look_ahead(self, files: Files, sequence: int) -> None:
        """Before the log is replayed from this record on."""
        try:
            for record in LogTail(files, sequence).take(NEWEST):
                if bytes(record.body[: len(_HEAD)]) == _HEAD:
                    operation = record.meta["entries"][0]
                    self._ahead.setdefault(operation["first"], []).append(operation)
        except Gone:
            return  # there is no log, or none from there on: then there is nothing to replay

    def counts_before(self, sequence: int) -> bool:
        return sequence in self._ahead

    def replay(self, sequence: int) -> None:
        """In front of this record views go out of service."""
        for operation in self._ahead.pop(sequence):
            runtime = self._runtime
            nodes = [runtime.builds.nodes[name] for name, _ in operation["views"] if name in runtime.builds.nodes]
            self._take_out(operation, operation["epoch"])
            runtime.engine.drop(nodes)
