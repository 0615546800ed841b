"""When a snapshot is taken, what goes into it, and what may be removed afterwards.

The files are written in the engine's thread (to the page cache: the state must not move meanwhile), made durable
and put in force by a thread of their own. The log written since the last one must outweigh it, so the cost per
written row is bounded.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from belvedere.embedded.builds import no_room
from belvedere.embedded.pins import PinLeases
from belvedere.embedded.runtime import Runtime
from belvedere.embedded.storage.commit import MicroClock
from belvedere.embedded.storage.files import Files
from belvedere.embedded.storage.log import InputLog
from belvedere.embedded.storage.plans import plan_json
from belvedere.embedded.storage.snapshot import SnapshotWriter
from belvedere.embedded.storage.views import ViewTable
from belvedere.errors import Closed
from belvedere.model import ddl

_COLLECT_EPOCHS = 256
_BUILD_SHARE = 10
"""A build goes on for so many times as long as the last snapshot took before the next one is taken."""


class Checkpointer:
    """Belongs to the engine's thread, but for the publishing thread that it starts."""

    def __init__(self, runtime: Runtime, files: Files, log: InputLog, clock: MicroClock, leases: PinLeases):
        self._runtime, self._files, self._log, self._clock, self._leases = runtime, files, log, clock, leases
        self.epoch = 0
        self.sequence = 0
        self.size = 0
        self.count = 0
        self.problem: str | None = None
        self._publishing: threading.Thread | None = None
        self._failed: BaseException | None = None
        self._penalty = 1
        self._since_collection = 0
        self._seconds = 0.0
        """How long the engine's thread wrote the last snapshot."""
        self._built = 0.0
        """Seconds of building since then."""

    def built(self, seconds: float) -> None:
        """A piece of a build is done: what it has got to is worth a snapshot now and then."""
        self._built += seconds
        options = self._runtime.options
        if not options.snapshot or self.publishing:
            return
        if self._built >= max(options.build_snapshot_seconds, _BUILD_SHARE * self._seconds) * self._penalty:
            self.take()

    def between(self) -> None:
        """Called between epochs."""
        self._check()
        options = self._runtime.options
        self._since_collection += 1
        if self._since_collection >= _COLLECT_EPOCHS:
            self._since_collection = 0
            self.collect()
        if not options.snapshot or self.publishing:
            return
        if self._log.bytes_after(self.sequence) >= max(options.snapshot_bytes, self.size) * self._penalty:
            self.take()

    @property
    def publishing(self) -> bool:
        return self._publishing is not None and self._publishing.is_alive()

    def take(self, *, wait: bool = False, anew: bool = False) -> None:
        """Write a snapshot of the committed epoch; with `anew` also if there is one, whose history is gone."""
        self.join()
        runtime = self._runtime
        epoch, sequence = runtime.committed, runtime.sequence
        if epoch == self.epoch and self.count and not anew and not self._built:
            return
        self._log.rotate()
        started, self._built = time.monotonic(), 0.0
        try:
            writer = SnapshotWriter(self._files, epoch)
            manifest = self._write(writer)
        except OSError as error:
            self._failed_with(error)
            if wait:
                self._check()
            return
        self._seconds = time.monotonic() - started
        self._publishing = threading.Thread(
            target=self._publish, args=(writer, manifest, epoch, sequence), name="belvedere-snapshot", daemon=True
        )
        self._publishing.start()
        if wait:
            self.join()
            self._check()

    def _check(self) -> None:
        if self._failed is not None:
            raise Closed(f"a snapshot could not be made durable: {self._failed}") from self._failed

    def join(self) -> None:
        if self._publishing is not None:
            self._publishing.join()

    def _write(self, writer: SnapshotWriter) -> dict[str, Any]:
        runtime = self._runtime
        state = {
            f"{digest}/{name}": values
            for digest, arrays in runtime.engine.dump_state().items()
            for name, values in arrays.items()
        }
        return {
            "epoch": runtime.committed,
            "sequence": runtime.sequence,
            "clock": self._clock.last,
            "requests": runtime.requests(runtime.committed),
            "catalog": ddl.catalog_json(runtime.catalog),
            "refused": [[view.value, view.reason, view.failed] for view in runtime.builds.refused.values()],
            "stale": [
                {**_view_json(view.stale.table, writer), "epoch": view.stale.epoch}
                for view in runtime.builds.refused.values()
                if view.stale is not None
            ],
            "pending": runtime.builds.pending,
            "build": runtime.builds.dump(lambda table: _view_json(table, writer)),
            "tables": {name: writer.add_table(table.dump()) for name, table in runtime.engine.tables.items()},
            "views": [_view_json(table, writer) for table in runtime.tables.values()],
            "shapes": [s.to_json() for s in runtime.shapes.values()],
            "plan": plan_json(runtime.engine.plan.views),
            "signature": runtime.engine.signature(runtime.engine.plan.views),
            "state": writer.add_arrays(state),
            "changelog": runtime.changelog.position().to_json(),
        }

    def _publish(self, writer: SnapshotWriter, manifest: dict[str, Any], epoch: int, sequence: int) -> None:
        try:
            self._runtime.changelog.sync()
        except OSError as error:
            self._stop(error)
            return
        try:
            writer.publish(manifest)
            self.epoch, self.sequence, self.size = epoch, sequence, writer.size
            self.count += 1
            self._penalty = 1
            self.problem = None
            self._log.collect(sequence)
            self.collect()
        except OSError as error:
            self._failed_with(error)

    def _failed_with(self, error: OSError) -> None:
        # every snapshot has files of its own, so one that found no room leaves nothing in doubt
        if no_room(error):
            self._give_up(error)
        else:
            self._stop(error)

    def _stop(self, error: OSError) -> None:
        """What a failed sync left on the disk is unknown: the engine's thread stops at its next turn."""
        self._failed = error
        self._runtime.stop(f"the database stopped: a snapshot could not be made durable: {error}")
        self._runtime.on_stop(self._runtime.failure or "")

    def _give_up(self, error: OSError) -> None:
        """No room: the log still has everything. Try again when it has grown."""
        self.problem = f"the last snapshot could not be written: {error}"
        self._penalty = min(self._penalty * 2, 64)

    def collect(self) -> None:
        """Remove history that nothing asks for any more."""
        runtime = self._runtime
        retention = max([runtime.options.retention_ms, *(v.retention_ms or 0 for v in runtime.catalog.views.values())])
        now = self._clock.now() // 1000
        pin = self._leases.oldest(now)
        runtime.retired = [t for t in runtime.retired if t.until is not None and pin is not None and pin < t.until]
        keep = now - retention if pin is None else min(pin, now - retention)
        never = self.epoch if pin is None else min(pin, self.epoch)
        runtime.changelog.collect(keep, runtime.options.history_bytes, never)


def _view_json(table: ViewTable, writer: SnapshotWriter) -> dict[str, Any]:
    return {**table.shape.to_json(), "since": table.since, "file": writer.add_arrays(table.dump())}
