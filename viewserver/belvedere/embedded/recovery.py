"""From files to a running state: the newest snapshot, then the log from there, through the same code as live writes.

State at an epoch is a function of the log up to it, so replay may group records as it likes, but for one boundary:
it steps exactly to the last epoch that the output changelog still has, and writes what comes after to it again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from belvedere.embedded.builds import RefusedView, StaleRows
from belvedere.embedded.runtime import Runtime, is_ddl
from belvedere.embedded.storage.changelog import Position
from belvedere.embedded.storage.commit import Group, GroupEntry, MicroClock
from belvedere.embedded.storage.files import Files
from belvedere.embedded.storage.log import InputLog
from belvedere.embedded.storage.plans import plan_of
from belvedere.embedded.storage.records import SegmentRecord
from belvedere.embedded.storage.snapshot import StoredSnapshot, collect
from belvedere.embedded.storage.views import ViewTable
from belvedere.errors import Closed, Damaged
from belvedere.model import change_codec as codec
from belvedere.model import ddl
from belvedere.model.describe import ViewShape
from belvedere.model.requests import Requests
from belvedere.model.shapes import shape_of
from belvedere.plan.nodes import Plan, ViewNode
from belvedere.plan.planner import plan_views

_log = logging.getLogger(__name__)


class Recovery:
    """What was found; `history_lost` asks for a snapshot, since reading processes need one that fits the changelog."""

    def __init__(
        self,
        runtime: Runtime,
        files: Files,
        log: InputLog,
        clock: MicroClock,
        given_up: Callable[[], bool] = lambda: False,
    ):
        """`requests` of the result are the names of writes that are remembered."""
        self._runtime, self._files, self._log, self._clock = runtime, files, log, clock
        self._given_up = given_up
        self.requests = Requests(lambda: clock.now() // 1000)
        self.snapshot: StoredSnapshot | None = None
        self.records = 0
        self.rebuilt = False
        self.history_lost = False
        self._state: dict[str, dict[str, Any]] = {}
        """Of operators by the digests of their parts of the plan, as the snapshot has it."""

    def run(self) -> None:
        runtime = self._runtime
        self.snapshot = StoredSnapshot.current(self._files)
        collect(self._files, None if self.snapshot is None else self.snapshot.name)
        manifest: dict[str, Any] = {"epoch": 0, "sequence": 0, "clock": 0, "changelog": None, "pending": None}
        if self.snapshot is not None:
            manifest = self.snapshot.manifest
            self.requests.load(manifest.get("requests", []))
            self._load(self.snapshot)
        runtime.committed, runtime.sequence = manifest["epoch"], manifest["sequence"]
        self._clock.last = manifest["clock"]
        position = None if manifest["changelog"] is None else Position(*manifest["changelog"])
        runtime.changelog.open(position, runtime.committed)
        if self.history_lost:
            runtime.changelog.reset(runtime.committed)
        if manifest["pending"] is not None:
            assert self.snapshot is not None
            kept = None if self.rebuilt else manifest.get("build")
            runtime.builds.resume(runtime.committed, manifest["pending"], kept, self.snapshot, self._state)
        self._state = {}
        known = set(runtime.builds.refused)
        self._replay()
        if runtime.changelog.epoch > runtime.committed or runtime.builds.refused.keys() - known:
            # Only without sync: the output survived a power cut and its input did not. Or it has rows of a view that
            # is out of service now.
            runtime.changelog.reset(runtime.committed)
            self.history_lost = True

    def _load(self, snapshot: StoredSnapshot) -> None:
        runtime, manifest = self._runtime, snapshot.manifest
        runtime.catalog, refused = ddl.catalog_of(manifest["catalog"])
        runtime.builds.refused = {v["name"]: RefusedView(v, reason) for v, reason in refused}
        self.history_lost = bool(refused)
        for value, *why in manifest.get("refused", ()):
            runtime.builds.refused[value["name"]] = RefusedView(value, *why)
        for view in manifest.get("stale", ()):
            stale = StaleRows.load(view, snapshot)
            runtime.builds.refused[view["name"]] = replace(runtime.builds.refused[view["name"]], stale=stale)
        for name, table in runtime.catalog.tables.items():
            runtime.engine.add_table(table)
            runtime.engine.tables[name].load(snapshot.table(manifest["tables"][name]))
        runtime.shapes = {(s["name"], s["version"]): ViewShape.of(s) for s in manifest["shapes"]}
        nodes = self._plan(manifest)
        stored = {v["name"]: v for v in manifest["views"]}
        same = manifest["signature"] == runtime.engine.signature(nodes)
        for node in nodes:
            view = runtime.catalog.views[node.name]
            shape = shape_of(node, view)
            runtime.builds.nodes[view.name] = node
            held = ViewTable(shape, self._committed, stored[view.name]["since"])
            runtime.tables[view.name] = held
            if ViewShape.of(stored[view.name]) != shape:
                held.since = manifest["epoch"]
                self.history_lost = True
            runtime.shapes[shape.name, shape.version] = shape
        if same:
            self._load_state(snapshot, nodes, stored)
        elif nodes:
            self._rebuild(nodes)

    def _plan(self, manifest: dict[str, Any]) -> list[ViewNode]:
        """The plan in force then, or a new one if that belongs to another version of this program."""
        catalog = self._runtime.catalog
        try:
            kept = [view for view in plan_of(manifest["plan"]) if view.name in catalog.views]
        except (KeyError, Damaged):
            kept = []
        if manifest["signature"] == self._runtime.engine.signature(kept):
            return kept
        nodes: list[ViewNode] = []
        for view in catalog.views.values():
            nodes += plan_views(catalog, [view], Plan(tuple(nodes)))
        return nodes

    def _committed(self) -> int:
        return self._runtime.committed

    def _load_state(self, snapshot: StoredSnapshot, nodes: list[ViewNode], stored: dict[str, Any]) -> None:
        runtime, state = self._runtime, self._state
        for path, values in snapshot.arrays(snapshot.manifest["state"]).items():
            digest, _, name = path.partition("/")
            state.setdefault(digest, {})[name] = values
        runtime.engine.load_state(nodes, state)
        for name, table in runtime.tables.items():
            table.load(snapshot.arrays(stored[name]["file"]))

    def _rebuild(self, nodes: list[ViewNode]) -> None:
        """State of another plan or engine: made again from the base rows."""
        runtime = self._runtime
        self.rebuilt = True
        rows = sum(len(runtime.engine.tables[name]) for name in runtime.catalog.tables)
        _log.warning(
            "the state of %d views was written by another version of belvedere: they are computed again from %d rows",
            len(nodes),
            rows,
        )
        build = runtime.engine.build(nodes, runtime.builds.rows_of)
        while (deltas := build.advance(runtime.options.build_rows)) is not None:
            for node, delta in deltas.items():
                runtime.tables[node.name].apply_now(delta.chunks, delta.quarantine)
                delta.chunks.close()
        runtime.engine.activate(build)

    def _replay(self) -> None:
        runtime = self._runtime
        groups: list[Group] = []
        rows = 0
        boundary = runtime.changelog.epoch
        runtime.failed_views.look_ahead(self._files, runtime.sequence)
        for record in self._log.replay(runtime.sequence, runtime.committed):
            fails = runtime.failed_views.counts_before(record.sequence)
            ahead = is_ddl_record(record) or fails
            crossing = bool(groups) and groups[-1].epoch <= boundary < record.epoch
            if groups and (ahead or crossing or rows >= runtime.options.epoch_rows):
                runtime.process(groups)
                groups, rows = [], 0
            if fails:
                runtime.failed_views.replay(record.sequence)
            if self._given_up():
                raise Closed("the database was given up before it was open")
            group = self._decode(record)
            self.records += 1
            if is_ddl(group):
                runtime.process([group])
                continue
            groups.append(group)
            rows += group.rows
        if groups:
            runtime.process(groups)

    def _decode(self, record: SegmentRecord) -> Group:
        meta = record.meta
        self._clock.last = max(self._clock.last, meta["clock"])
        buffers = iter(record.buffers([m["b"] for m in meta["entries"] if "b" in m]))
        entries = []
        for entry in meta["entries"]:
            if entry["k"] == "ddl":
                entries.append(GroupEntry(entry, alone=True))
                continue
            table = self._runtime.catalog.tables.get(entry["t"])
            if table is None:
                raise Damaged(
                    f"the input log writes to table {entry['t']!r}, which does not exist at record {record.sequence}"
                )
            changes = codec.decode(table, entry, next(buffers))
            if "req" in entry:
                self.requests.remember(entry["req"], record.epoch)
            entries.append(GroupEntry(entry, None, table.name, changes, len(changes)))
        return Group(record.epoch, record.sequence, tuple(entries), sum(e.rows for e in entries), record.length)


def is_ddl_record(record: SegmentRecord) -> bool:
    """DDL has a record of its own."""
    return bytes(record.body[:64]).startswith(b'{"entries":[{"k":"ddl"')
