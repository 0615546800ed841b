"""The simulated distributor process: pushes into INPUT (`exactly_once.Filter`), and its part in epochs (`flow`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from belvedere.cluster.roles.work import WorkError, failure
from belvedere.errors import BelvedereError
from belvedere.protocol import exactly_once as eo
from belvedere.protocol.driving import Commit, Distribute, Distributed, Received
from belvedere.protocol.exactly_once import ChunkId, RequestId, SourceEntry, SourceId, WriterId
from belvedere.protocol.flow import Distributor
from belvedere.protocol.messages import Batch, Epoch, Role
from belvedere.protocol.ring import MemberId
from tests.simulator.conduct import check_reports
from tests.simulator.process import Process, Surroundings
from tests.simulator.scheduler import MS
from tests.simulator.sources import Answer

Encode = Callable[[SourceId, tuple[SourceEntry, ...]], bytes]
"""The payload of a chunk."""


class Distribution(Protocol):
    def __iter__(self) -> Any: ...

    def distributed(self) -> Distributed: ...


class Work(Protocol):
    """What a distributor computes (`cluster.work.DistributorWork`, or only what it costs)."""

    def distribute(self, distribute: Distribute) -> Distribution: ...

    def written(self, chunk: ChunkId, payload: bytes) -> None: ...

    def commit(self, epoch: Epoch) -> None: ...


class Dispatch(Protocol):
    to: MemberId
    batch: Batch
    payload: bytes


class DistributorProcess(Process):
    role = Role.DISTRIBUTOR

    def __init__(self, around: Surroundings, host: str, incarnation: int, work: Work, encode: Encode) -> None:
        super().__init__(around, host, incarnation)
        self.machine = Distributor(self.name)
        self.filter = eo.DuplicateFilter(WriterId(self.name))
        self._work, self._encode = work, encode
        self._requests: dict[RequestId, Answer] = {}
        self._count = 0

    def start(self) -> None:
        super().start()
        memory = self.around.store.memory

        def restored(index: list[eo.Chunk]) -> None:
            self.call(lambda: self.tell(self.filter, eo.Restored(index, {})))

        self.around.store.ask(memory.chunks, restored, lambda _: None)

    # ------------------------------------------------------------------ what sources push

    def pushed(self, source: SourceId, entries: tuple[SourceEntry, ...], answer: Answer) -> None:
        self.call(lambda: self._pushed(source, entries, answer))

    def _pushed(self, source: SourceId, entries: tuple[SourceEntry, ...], answer: Answer) -> None:
        if self.leaving:
            answer(False)
            return
        self._count += 1
        request = RequestId(self._count)
        self._requests[request] = answer
        self.tell(self.filter, eo.ReceivedEntries(request, source, entries))

    # ------------------------------------------------------------------ epochs

    def received(self, event: Received, payload: bytes | None) -> None:
        self.tell(self.machine, event)
        if self.machine.released:
            self.leave()

    def decided(self, machine: Any, instructions: Sequence[Any]) -> None:
        check_reports(self.name, self.machine.attempt, instructions)

    def carry_out(self, instruction: Any) -> None:
        match instruction:
            case eo.Write(chunk, entries):
                self._write(chunk, entries)
            case eo.Acknowledge(request):
                self._answer(request, True)
            case eo.Refuse(request):
                self._answer(request, False)
            case Distribute():
                self.around.scheduler.after(1 * MS, lambda: self.call(lambda: self._distribute(instruction)))
            case Commit(epoch):
                self._work.commit(epoch)
            case _:
                raise AssertionError(f"a distributor cannot {instruction}")

    def _answer(self, request: RequestId, acknowledged: bool) -> None:
        answer = self._requests.pop(request, None)
        if answer is not None:
            answer(acknowledged)

    def _write(self, chunk: eo.Chunk, entries: tuple[SourceEntry, ...]) -> None:
        payload = self._encode(chunk.source, entries)
        chunk = replace(chunk, size=len(payload), at=self.clock())
        memory = self.around.store.memory

        def written(_: None) -> None:
            self._work.written(chunk.id, payload)
            self.tell(self.filter, eo.WrittenChunk(chunk.id))

        def failed(reason: str) -> None:
            self.call(lambda: self.tell(self.filter, eo.WriteFailed(chunk.id, reason)))

        put = lambda: memory.put_chunks([(chunk, payload)])  # noqa: E731
        self.around.store.ask(put, lambda done: self.call(lambda: written(done)), failed)

    def _distribute(self, distribute: Distribute) -> None:
        """All batches of one instruction; a session that is suspended meanwhile holds them up like instructions."""
        if not self.may_act():
            self.around.scheduler.after(5 * MS, lambda: self.call(lambda: self._distribute(distribute)))
            return
        try:
            with self.around.store.reading():
                distribution = self._work.distribute(distribute)
                dispatches: Iterable[Dispatch] = list(distribution)
        except (BelvedereError, WorkError) as error:
            self.tell(self.machine, failure(distribute.plan.epoch, distribute.generation.number, error))
            return
        for dispatch in dispatches:
            self.peers.send(dispatch.to, dispatch.batch, dispatch.payload)
        self.tell(self.machine, distribution.distributed())
