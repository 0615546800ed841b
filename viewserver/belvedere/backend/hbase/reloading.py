"""A table that is read again on request, after a bulk load, which bypasses the log, or when deletes were lost.

    hbase/reloads/NAME/ID      which rows, and how far it is

    SCAN ──all ranges committed──▶ COMPARE ──nothing differs any more──▶ DONE

*Scan.* All rows come once more, as when the table was new (`loading`): what a bulk load brought is merged by its
timestamps. Ranges have the id of the reload in their names, so a successor goes on with what is there.

*Compare.* What is left are rows that HBase does not have, or not so: deletes that the log never told of, rows behind a
mask of which HBase has forgotten the delete, cells that an older version replaced. No timestamp could correct them: a
client's own may be newer than any. A correction names the image that it takes away (`CellChange.FORGOTTEN`), and does
nothing where DELTA has another. It is made so:

1. the log of now reaches INPUT (`log_fence`) and is committed;
2. DELTA is read, then HBase: rows that differ are suspects;
3. the log of now reaches INPUT again and is committed: DELTA has everything that came before HBase was read;
4. of the suspects DELTA is read, then HBase. A suspect that DELTA shows as HBase did was only late. One of which DELTA
   knows the same as before, and HBase shows the same as before, is wrong: its image is taken away, and what HBase has
   of it is put in its place, both in one entry, which no epoch splits. It is a suspect of the next round, for the
   correction does nothing if the row was written just then, and so are all others, which were written meanwhile.

So a change that HBase had when it was read cannot come later and find its image taken away: it was in DELTA before. A
change that comes later than the correction finds what HBase had when it came. One that comes before the correction
makes another image, and the correction does nothing. (What would be missed is a client that writes the same cell at
the same timestamp to and fro, between every two of these steps. The next reload finds it.)

A request that only looks begins with the comparison and replaces nothing: what step 4 finds wrong is counted, once.

Whoever reloads a table holds its node in ZooKeeper. Two at once would do no harm, and neither does a crash: everything
up to the entry of step 4 changes nothing, and that entry repeated finds another image.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from belvedere.backend.hbase.followed import FollowedBook, FollowedTable
from belvedere.backend.hbase.images import Comparison, Images, find, same
from belvedere.backend.hbase.loading import LoadBook, Loader, new_attempt
from belvedere.backend.hbase.log_fence import LogFence
from belvedere.backend.hbase.pacing import wait_until_committed
from belvedere.backend.seam import Committed, Documents, ReloadState, Store
from belvedere.model import chunks
from belvedere.model.change_codec import WrittenRow
from belvedere.protocol.exactly_once import Seq, SourceId, positions

log = logging.getLogger(__name__)

_RELOADS = "hbase/reloads/"
SCAN, COMPARE, DONE = "scan", "compare", "done"
_ROUNDS = 5
_ENTRY_ROWS = 10_000
_EXAMPLES = 10


@dataclass(frozen=True)
class Reload:
    """`pieces`: the parts of the rows that regions had, from and to, hexadecimal."""

    table: str
    id: str
    pieces: tuple[tuple[str, str], ...]
    phase: str = SCAN
    attempt: str = ""
    corrected: int = 0
    undecided: int = 0
    looks: bool = False
    """Nothing is read once more and nothing is corrected: what is wrong is counted."""
    counts: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)
    examples: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]] = ((), (), ())

    @property
    def document(self) -> str:
        return f"{_RELOADS}{self.table}/{self.id}"

    @property
    def prefix(self) -> str:
        """Of the names of its ranges."""
        return f"{self.id}-"

    @property
    def state(self) -> ReloadState:
        return ReloadState(
            self.id, self.table, self.phase, self.corrected, self.undecided, counts=self.counts, examples=self.examples
        )


class ReloadBook:
    """The documents."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def ask(self, reload: Reload) -> None:
        """Unless it was asked for before. Those of its table that are done are forgotten."""
        if self.read(reload.document) is None:
            done = [one.document for one in self.all(reload.table) if one.phase == DONE]
            self._documents.remove_documents(done)
            self.put(reload)

    def put(self, reload: Reload) -> None:
        value = {k: v for k, v in vars(reload).items() if k not in ("table", "id")}
        self._documents.put_document(reload.document, json.dumps(value).encode())

    def read(self, document: str) -> Reload | None:
        data = self._documents.get_document(document)
        if data is None:
            return None
        table, id = document.removeprefix(_RELOADS).rsplit("/", 1)
        value = json.loads(data)
        pieces = tuple((start, stop) for start, stop in value.pop("pieces"))
        counts = tuple(value.pop("counts", (0, 0, 0, 0, 0)))
        missing, extra, different = (tuple(part) for part in value.pop("examples", ((), (), ())))
        return Reload(table, id, pieces, counts=counts, examples=(missing, extra, different), **value)

    def all(self, table: str | None = None) -> list[Reload]:
        names = self._documents.list_documents(_RELOADS if table is None else f"{_RELOADS}{table}/")
        return [reload for reload in map(self.read, names) if reload is not None]

    def remove(self, table: str) -> None:
        self._documents.remove_documents(self._documents.list_documents(f"{_RELOADS}{table}/"))


class Reloader:
    """Carries reloads on, each from where it is. `wait`: seconds to sleep; true ends it."""

    def __init__(
        self,
        book: FollowedBook,
        loads: LoadBook,
        reloads: ReloadBook,
        loader: Loader,
        store: Store,
        fence: LogFence,
        committed: Committed,
        wait: Callable[[float], bool],
    ) -> None:
        self._book, self._loads, self._reloads, self._loader = book, loads, reloads, loader
        self._store, self._fence, self._committed, self._wait = store, fence, committed, wait

    def advance(self, table: FollowedTable, reload: Reload) -> None:
        """One phase further, if it can be: ranges are read by whoever has time for them."""
        assert table.definition.origin is not None
        if reload.phase == SCAN:
            self._loads.add(table.name, reload.prefix, table.definition.origin.families, reload.pieces)
            if all(range.done for range in self._loads.ranges(table.name, reload.prefix)):
                self._catch_up(table)  # what was read is committed
                self._reloads.put(replace(reload, phase=COMPARE))
        elif reload.phase == COMPARE:
            done = self._correct(table, reload)
            self._loads.remove(table.name, reload.prefix)
            self._reloads.put(replace(done, phase=DONE))

    def _catch_up(self, table: FollowedTable) -> None:
        """Returns when all that is in INPUT is committed."""
        sources = {source.id for source in self._book.sources() if source.table == table.name}
        durable: dict[SourceId, Seq] = {
            source: seq for source, seq in positions(self._store.chunks()).items() if source in sources
        }
        wait_until_committed(durable, self._known_sources, self._committed, self._wait)

    def _known_sources(self) -> set[SourceId]:
        return {source.id for source in self._book.sources()}

    def _everything_before(self, table: FollowedTable) -> None:
        """Returns when all that was in HBase's log is committed."""
        self._fence.passed()
        self._catch_up(table)

    # ------------------------------------------------------------------ corrections

    def _correct(self, table: FollowedTable, reload: Reload) -> Reload:
        comparison = Comparison(table, self._store, self._loader, self._committed)
        self._everything_before(table)
        delta = comparison.delta()
        base = self._look(comparison, reload, None)[0]
        suspects = comparison.differing(delta, base)
        suspects = self._within(comparison, reload, suspects, base)
        if reload.looks:
            reload = replace(reload, counts=(len(base.ids), 0, 0, 0, 0), examples=((), (), ()))
        for _ in range(_ROUNDS):
            if not len(suspects):
                break
            log.info("table %r: %d rows are not as hbase has them, or were written just now", table.name, len(suspects))
            self._everything_before(table)
            delta_now = comparison.delta(suspects)
            base_now, read = self._look(comparison, reload, suspects)
            late = same(delta_now, base, suspects)
            wrong = ~late & _unchanged(delta, delta_now, suspects) & same(base, base_now, suspects)
            if reload.looks:
                reload = _counted(reload, suspects[wrong], delta_now, base_now, int(late.sum()))
                late |= wrong
            elif wrong.any():
                reload = self._replace(table, comparison, reload, suspects[wrong], delta_now, read)
            suspects = suspects[~late]  # a correction that came too late did nothing
            delta, base = delta_now, base_now
        return replace(reload, undecided=len(suspects))

    def _look(self, comparison: Comparison, reload: Reload, only: np.ndarray | None) -> tuple[Images, list[WrittenRow]]:
        """From the first of its rows to the last: regions may be others by now."""
        start, stop = bytes.fromhex(reload.pieces[0][0]), bytes.fromhex(reload.pieces[-1][1])
        return comparison.base(start, stop, only)

    def _within(self, comparison: Comparison, reload: Reload, suspects: np.ndarray, base: Images) -> np.ndarray:
        """Without rows that only DELTA has and that lie elsewhere in the table."""
        start, stop = bytes.fromhex(reload.pieces[0][0]), bytes.fromhex(reload.pieces[-1][1])
        if not (start or stop) or not len(suspects):
            return suspects
        unseen = suspects[~find(base.ids, suspects)[1]]
        elsewhere = unseen[~comparison.between(unseen, start, stop)]
        return np.asarray(suspects[~find(elsewhere, suspects)[1]])

    def _replace(
        self,
        table: FollowedTable,
        comparison: Comparison,
        reload: Reload,
        wrong: np.ndarray,
        delta: Images,
        read: list[WrittenRow],
    ) -> Reload:
        """Rows with the image that is taken away, then what HBase has of them; a row is never in two entries."""
        if reload.attempt:
            self._book.end(table.name, [reload.attempt])
        attempt = new_attempt(table.name)
        self._book.put_region(attempt)
        reload = replace(reload, attempt=attempt.encoded, corrected=reload.corrected + len(wrong))
        self._reloads.put(reload)
        for seq, first in enumerate(range(0, len(wrong), _ENTRY_ROWS)):
            ids = wrong[first : first + _ENTRY_ROWS]
            parts = [rows.take(np.flatnonzero(find(ids, comparison.ids(rows))[1])) for rows in read]
            known = comparison.forgotten(ids, delta)
            together = chunks.together([known, *(part for part in parts if len(part.changes))])
            self._loader.push(attempt, seq, together)
        self._book.end(table.name, [attempt.encoded])
        log.warning("table %r: %d rows were not as hbase has them, and are corrected", table.name, len(wrong))
        self._catch_up(table)
        return reload


def _counted(reload: Reload, wrong: np.ndarray, delta: Images, base: Images, late: int) -> Reload:
    """Rows that both looks saw so: HBase shows one and DELTA does not, the reverse (a lost delete), or other cells."""
    mine, theirs = (np.any([part != 0 for part in side.of(wrong)], axis=0) for side in (delta, base))
    kinds = (wrong[theirs & ~mine], wrong[mine & ~theirs], wrong[mine & theirs])
    rows, *counts, lag = reload.counts
    missing, extra, different = (count + len(ids) for count, ids in zip(counts, kinds, strict=True))
    examples = [
        (*known, *(id.tobytes().hex() for id in ids))[:_EXAMPLES]
        for known, ids in zip(reload.examples, kinds, strict=True)
    ]
    return replace(
        reload, counts=(rows, missing, extra, different, lag + late), examples=(examples[0], examples[1], examples[2])
    )


def _unchanged(before: Images, now: Images, ids: np.ndarray) -> np.ndarray:
    """Mask of the ids of which DELTA knows what it knew."""
    assert before.known is not None and now.known is not None
    (at, was), (at_now, is_there) = find(before.ids, ids), find(now.ids, ids)
    equal = np.asarray(was == is_there)
    both = was & is_there
    equal[both] = before.known[at[both]] == now.known[at_now[both]]
    return equal
