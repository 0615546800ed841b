"""The distributor: takes what sources push and makes it durable in INPUT; sends pieces of INPUT to view servers.

    pusher ──call──▶ Filter (in the loop) ──Write──▶ input threads ──▶ store        answered when it is durable
    leader ──Begin─▶ Distributor (in the loop) ──Distribute──▶ send thread ──batches──▶ peers

A push waits in a thread of the transport until it is answered. Whoever may not act (a session that may have ended,
leaving) refuses, and the pusher goes elsewhere. Sending waits while much is queued for receivers: they always drain, so
this ends, and a backlog needs bounded memory here.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from belvedere import errors
from belvedere.backend.seam import CommittedAt, OpenSink
from belvedere.cluster.catalog import catalogs
from belvedere.cluster.process.loop import Busy
from belvedere.cluster.process.next_engine import engines_of
from belvedere.cluster.process.process import NO_PART, Incarnation, Surroundings
from belvedere.cluster.process.retrying import Retrying
from belvedere.cluster.roles.overview import MEMBER
from belvedere.cluster.roles.work import DistributorWork, failure, newest_catalog
from belvedere.cluster.transport import calls
from belvedere.cluster.transport.seam import Handler, Payload
from belvedere.model import chunks
from belvedere.model.pushes import PUSH, unpack_request
from belvedere.protocol import exactly_once as input
from belvedere.protocol.driving import Commit, Distribute, DistributorEvent, Note, Received, Send
from belvedere.protocol.exactly_once import Chunk, RequestId, SourceEntry, SourceId, WriterId
from belvedere.protocol.flow import Distributor
from belvedere.protocol.messages import Generation, Message, PoolState, Role
from belvedere.protocol.ring import MemberId
from belvedere.retry import Retry, Superseded

INPUT_THREADS = 4
"""Chunks of different sources that are written at the same time; the store commits them together."""
WRITE_BYTES = 8 << 20
WRITE_CHUNKS = 256
"""What one write to INPUT takes along of what waits."""
PUSH_SECONDS = 20.0
BACKLOG_BYTES = 64 << 20
BACKLOG_PAUSE = 0.002


class DistributorMember(Incarnation):
    role = Role.DISTRIBUTOR

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.machine = Distributor(self.me)
        self.filter = input.DuplicateFilter(WriterId(self.me))
        self.pushes = Pushes()
        store = Retrying(around.store, self._sending_is_wanted, around.trouble.store)
        self.work = DistributorWork(
            self.me,
            store,
            catalogs.compile,
            chunks.decode,
            memory_limit=self.options.memory_limit // 4,
            engines=engines_of(*self.options.engines),
        )
        self.sender = self.worker("send")
        self.inputs = [self.worker(f"input {number}") for number in range(INPUT_THREADS)]
        self.sinks = self.worker("sink")
        self.busy = Busy(self.sender, *self.inputs)
        self._requests = itertools.count(1)
        self._distributing: Distribute | None = None
        self._told = (0, 0, 0, 0)
        self._unwritten: deque[tuple[Chunk, tuple[SourceEntry, ...]]] = deque()
        self.sink: OpenSink | None = None
        around.metrics.send_backlog(around.transport.backlog, around.transport.troubles)

    @property
    def released(self) -> bool:
        return self.machine.released

    @property
    def not_ready(self) -> str:
        return NO_PART if self.machine.generation is None else ""

    def prepare(self, state: PoolState | None) -> None:
        self.work.prepare(newest_catalog(state, self.around.store))

    def handlers(self) -> dict[str, Handler]:
        return {MEMBER: lambda _: calls.status_json(self.status()), PUSH: self._push_call}

    def began(self) -> None:
        self.inputs[0].do(self._restore)
        if self.around.follower is not None:
            self.sinks.do(self._open_sink)

    def closed(self) -> None:
        self.pushes.close()
        if self.sink is not None:
            self.sink.close()

    def _open_sink(self) -> None:
        """In a thread of its own, again and again until it is there."""
        assert self.around.follower is not None
        follower = self.around.follower
        retry = Retry(
            on=(errors.BelvedereError,), wanted=lambda: not self.loop.stopped, outage=self.around.trouble.store
        )
        with contextlib.suppress(Superseded):
            self.sink = retry.run(lambda: follower.sink(self.push_all, self._committed))
            self.metrics.backlog(self.sink.input_bytes, self.sink.quota_bytes)
            self.log.info("takes log entries")

    def _committed(self) -> CommittedAt:
        """From the store, where it is published."""
        known = calls.read_committed(self.around.store, calls.NEWEST)
        return CommittedAt(-1, {}) if known is None else CommittedAt(known.epoch, known.positions)

    # ------------------------------------------------------------------ pushes

    def _push_call(self, request: bytes) -> bytes:
        source, _, payload = unpack_request(request)
        self.push(source, chunks.parse(payload))
        return b""

    def push(self, source: SourceId, entries: Sequence[SourceEntry]) -> None:
        """Returns when all of it is durable; raises when the pusher must send it again."""
        self.push_all([(source, entries)])

    def push_all(self, runs: Sequence[tuple[SourceId, Sequence[SourceEntry]]]) -> None:
        """The same for runs of several sources, which are written together."""
        if self.leave_by is not None:
            raise errors.PeerUnavailable(f"distributor {self.me} is leaving")
        if not self.may_act():
            raise errors.PeerUnavailable(f"distributor {self.me} may have lost its session")
        begun = time.monotonic()
        answers = []
        for source, entries in runs:
            request = RequestId(next(self._requests))
            answers.append(self.pushes.expect(request, sum(len(entry.rows) for entry in entries)))
            self.loop.post(functools.partial(self._tell_filter, input.ReceivedEntries(request, source, entries)))
        for answer in answers:
            refused = answer.wait(max(0.0, begun + PUSH_SECONDS - time.monotonic()))
            if refused:
                raise errors.PeerUnavailable(refused)

    def _tell_filter(self, event: input.Event) -> None:
        for instruction in self.filter.handle(event):
            match instruction:
                case input.Write(chunk, entries):
                    self._unwritten.append((chunk, entries))
                    self.inputs[hash(chunk.source) % len(self.inputs)].do(self._write)
                case input.Acknowledge(request):
                    self.pushes.answer(request, "")
                case input.Refuse(request, reason):
                    self.pushes.answer(request, reason)

    def _write(self) -> None:
        """In a thread for INPUT: what waits is written together, and tried once, the pusher comes again. (Of a source
        one chunk waits at most, so their order does not matter.)"""
        batch: list[tuple[Chunk, bytes]] = []
        size = 0
        while size < WRITE_BYTES and len(batch) < WRITE_CHUNKS:
            try:
                chunk, entries = self._unwritten.popleft()
            except IndexError:
                break
            payload = chunks.encode(chunk.source, entries)
            size += len(payload)
            batch.append((replace(chunk, size=len(payload), at=int(time.time() * 1000)), payload))
        if not batch:
            return  # another thread has taken it along
        failed = ""
        try:
            self.around.store.put_chunks(batch)
        except errors.BelvedereError as error:
            failed = str(error)
            self.around.trouble.store.set(failed)
        else:
            self.around.trouble.store.clear()
        for chunk, payload in batch:
            if not failed:
                self.work.written(chunk.id, payload)
            event: input.Event = input.WriteFailed(chunk.id, failed) if failed else input.WrittenChunk(chunk.id)
            self.loop.post(functools.partial(self._tell_filter, event))

    def _restore(self) -> None:
        """What is durable already need not be written again."""
        try:
            index = self.around.store.chunks()
        except errors.BelvedereError as error:
            self.log.info("begins without knowing INPUT", reason=error)
            return
        self.loop.post(functools.partial(self._tell_filter, input.Restored(index, {})))

    # ------------------------------------------------------------------ epochs

    def received(self, sender: MemberId, message: Message, payload: Payload | None) -> None:
        self._tell(Received(sender, message))

    def _tell(self, event: DistributorEvent) -> None:
        for instruction in self.machine.handle(event):
            match instruction:
                case Send(to, message):
                    self.peers.send(to, message)
                case Note():
                    self.note(instruction)
                case Distribute():
                    self.sender.do(functools.partial(self._distribute, instruction))
                case Commit(epoch):
                    self.metrics.committed(epoch)
                    self.sender.do(functools.partial(self.work.commit, epoch))

    def _sending_is_wanted(self) -> bool:
        wanted = self._distributing
        return wanted is not None and wanted.generation.number == self.machine.attempt and not self.loop.stopped

    def _distribute(self, distribute: Distribute) -> None:
        """In the thread that sends."""
        self._distributing = distribute
        if not self._sending_is_wanted():
            return
        begin, waited = time.monotonic(), 0.0
        try:
            distribution = self.work.distribute(distribute)
            for dispatch in distribution:
                waited += self._wait_for_receivers(distribute.generation)
                self.peers.send(dispatch.to, dispatch.batch, dispatch.payload)
            event: DistributorEvent = distribution.distributed()
            took = time.monotonic() - begin
            self.metrics.epoch_step("flow", took)
            self.metrics.worked(took - waited)
        except Superseded:
            return
        except Exception as error:
            self.log.failure("cannot distribute", error, epoch=distribute.plan.epoch)
            event = failure(distribute.plan.epoch, distribute.generation.number, error)
        self.loop.post(functools.partial(self._tell, event))

    def _wait_for_receivers(self, generation: Generation) -> float:
        """Seconds. Those who have no part in the generation any more are not waited for: they may hang."""
        begin = time.monotonic()
        while self.around.transport.backlog(generation.servers) + self.peers.held_bytes() > BACKLOG_BYTES:
            if not self._sending_is_wanted():
                raise Superseded
            time.sleep(BACKLOG_PAUSE)
        return time.monotonic() - begin

    # ------------------------------------------------------------------ figures, status

    def figures(self) -> None:
        dropped, told, chunks = self.filter.dropped, self._told, self.work.chunks
        now = (dropped.entries, dropped.rows, chunks.hits, chunks.misses)
        entries, rows, hits, misses = (after - before for after, before in zip(now, told, strict=True))
        self._told = now
        self.metrics.duplicates("entries", entries)
        self.metrics.duplicates("rows", rows)
        self.metrics.cache(hits, misses)
        self.metrics.queue(self.pushes.rows(), self.pushes.waiting())

    def status(self) -> dict[str, object]:
        work = self.work.chunks
        return {
            **self.about(),
            "epoch": self.machine.committed,
            "attempt": self.machine.attempt,
            "queue": self.pushes.waiting() + self.sender.waiting(),
            "queue_bytes": self.around.transport.backlog(),
            "busy": round(self.busy.share(), 3),
            "figures": {
                "duplicates_dropped": self.filter.dropped.rows,
                "chunk_hits": work.hits,
                "chunk_misses": work.misses,
                **({} if self.sink is None else self.sink.figures_now()),
            },
        }


class _Answer:
    def __init__(self, pushes: Pushes, request: RequestId, rows: int) -> None:
        self._pushes, self._request, self.rows = pushes, request, rows
        self._done = threading.Event()
        self._refused = ""

    def give(self, refused: str) -> None:
        self._refused = refused
        self._done.set()

    def wait(self, seconds: float) -> str:
        """Why it was refused; empty if all is durable."""
        if self._done.wait(seconds):
            return self._refused
        self._pushes.forget(self._request)
        return f"not written to INPUT within {seconds:g} s"


class Pushes:
    """Those who wait for an answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[RequestId, _Answer] = {}
        self._closed = False

    def expect(self, request: RequestId, rows: int = 0) -> _Answer:
        answer = _Answer(self, request, rows)
        with self._lock:
            if self._closed:
                raise errors.PeerUnavailable("the distributor ends")
            self._waiting[request] = answer
        return answer

    def answer(self, request: RequestId, refused: str) -> None:
        with self._lock:
            answer = self._waiting.pop(request, None)
        if answer is not None:
            answer.give(refused)

    def forget(self, request: RequestId) -> None:
        with self._lock:
            self._waiting.pop(request, None)

    def waiting(self) -> int:
        return len(self._waiting)

    def rows(self) -> int:
        with self._lock:
            return sum(answer.rows for answer in self._waiting.values())

    def close(self) -> None:
        with self._lock:
            self._closed = True
            waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            answer.give("the distributor ends")
