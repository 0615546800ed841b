"""Work of view servers and distributors without processes: the same bytes whoever does it, however often."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from belvedere import errors
from belvedere.backend.memory import MemoryStore, Moment
from belvedere.cluster.catalog import catalogs
from belvedere.cluster.process.next_engine import FORMATS, NEXT, REBUILDS, engines_of
from belvedere.cluster.roles.work import (
    Dispatch,
    Distribution,
    DistributorWork,
    ServerWork,
    WorkError,
    failure,
    ring_of,
)
from belvedere.engine.formats import THIS_VERSION, Engines, view_group_of
from belvedere.engine.shard import view_table
from belvedere.engine.version import ENGINE_VERSION
from belvedere.model import chunks
from belvedere.model.rows import GivenRows
from belvedere.protocol.driving import Adopt, Compute, Distribute, Open, Persist
from belvedere.protocol.exactly_once import Chunk, ChunkId, InputPiece, Seq, SourceId, WriterId
from belvedere.protocol.flow import pieces_of
from belvedere.protocol.messages import Attempt, Epoch, EpochPlan, Generation, Slice, Term
from belvedere.protocol.ring import BUCKETS, MemberId
from belvedere.sql.catalog import TableDef

SOURCE = SourceId("orders/0")
STATEMENTS = (
    "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, total DECIMAL(12,2))",
    "CREATE MATERIALIZED VIEW spend AS "
    "SELECT customer, count(*) AS n, sum(total) AS total FROM orders GROUP BY customer",
    "CREATE MATERIALIZED VIEW big AS SELECT customer, n FROM spend WHERE n > 2",
)
DOCUMENT = "catalog/1"


class Table:
    """A pool on a table: plans are made here, everybody does what they say, in any order."""

    def __init__(
        self,
        seed: int,
        servers: int,
        directory: Path | None = None,
        memory_limit: int = 1 << 30,
        engines: Engines = THIS_VERSION,
        made: int = 0,
    ) -> None:
        self.engines = engines
        self.rng, self.order = random.Random(seed), random.Random(seed)
        self.store = MemoryStore()
        self.memory_limit, self.directory = memory_limit, directory
        self.committed = Epoch(0)
        self.came: dict[tuple[MemberId, Epoch, Attempt, int], set[tuple[MemberId, int]]] = {}
        self.attempt = 0
        self.seq = 0
        self.truth: dict[int, tuple[int, int]] = {}
        self.servers: dict[MemberId, ServerWork] = {}
        self.distributors: dict[MemberId, DistributorWork] = {}
        document = catalogs.empty()
        for statement in STATEMENTS:
            document = catalogs.execute(document, statement, engine=made) or document
        self.compiled = catalogs.compile(document)
        self.store.put_document(DOCUMENT, document)
        self.orders: TableDef = self.compiled.tables["orders"].stored
        for name in ("d-1", "d-2"):
            self.distributors[MemberId(name)] = DistributorWork(
                MemberId(name), self.store, catalogs.compile, chunks.decode, memory_limit=2000, engines=engines
            )
        self.scale(servers)

    def scale(self, servers: int) -> None:
        for number in range(len(self.servers), servers):
            self.start(MemberId(f"s-{number}"))
        for name in list(self.servers)[servers:]:
            del self.servers[name]
        self.generation()

    def start(self, name: MemberId) -> None:
        self.servers[name] = ServerWork(
            name,
            self.store,
            catalogs.compile,
            memory_limit=self.memory_limit,
            spill_directory=self.directory,
            engines=self.engines,
        )

    def generation(self, skipping: int = 0) -> None:
        """A new attempt: everybody undoes what is not committed."""
        self.attempt += 1 + skipping
        servers = tuple(sorted(self.servers))
        self.current = Generation(
            Attempt(self.attempt), Term(1), MemberId("c"), self.attempt, servers, tuple(sorted(self.distributors))
        )
        for work in self.servers.values():
            work.adopt(Adopt(self.current, self.committed))

    # ------------------------------------------------------------------ input

    def write(self) -> list[InputPiece]:
        """Some chunks of INPUT: puts and deletes of orders, with what they leave in `truth`."""
        found = []
        for number in range(self.rng.randrange(1, 5)):
            ids = [self.rng.randrange(40) for _ in range(self.rng.randrange(1, 6))]
            writer = self.rng.choice(["d-1", "d-2", "gone"])
            reader = GivenRows(self.orders)
            if self.rng.random() < 0.3:
                changes = reader.deletes(sorted(set(ids)))
                self.truth = {id: row for id, row in self.truth.items() if id not in ids}
            else:
                rows = {id: (self.rng.randrange(7), self.rng.randrange(-500, 500)) for id in ids}
                changes = reader.puts(
                    [{"id": i, "customer": c, "total": f"{t / 100:.2f}"} for i, (c, t) in rows.items()]
                )
                self.truth.update(rows)
            assert changes is not None
            after, self.seq = self.seq, self.seq + 1
            changes.ts = np.full(len(changes), self.seq, np.int64)
            payload = chunks.entry(self.orders, Seq(self.seq), changes)
            id = ChunkId(WriterId(writer), self.seq * 10 + number)
            self.store.put_chunks([(Chunk(id, SOURCE, Seq(self.seq), Seq(self.seq)), payload)])
            if MemberId(writer) in self.distributors and self.rng.random() < 0.5:
                self.distributors[MemberId(writer)].written(id, payload)
            found.append(InputPiece(id, SOURCE, Seq(after), Seq(self.seq)))
        return found

    def plan(self, epoch: int, slices: tuple[Slice, ...] = ()) -> EpochPlan:
        return EpochPlan(
            Epoch(epoch),
            tuple(self.write()),
            {SOURCE: Seq(self.seq)},
            1,
            DOCUMENT,
            self.compiled.stages,
            slices,
            engine=self.engines.newest,
        )

    # ------------------------------------------------------------------ an epoch

    def distribute(self, plan: EpochPlan) -> list[Distribution]:
        done = []
        for name, work in self.distributors.items():
            distribution = work.distribute(Distribute(plan, self.current, pieces_of(plan, self.current, name)))
            for dispatch in distribution:
                self.keep(dispatch)
            done.append(distribution)
        return done

    def keep(self, dispatch: Dispatch) -> None:
        batch = dispatch.batch
        self.came.setdefault((dispatch.to, batch.epoch, batch.attempt, batch.stage), set()).add(
            (batch.sender, batch.number)
        )
        self.servers[dispatch.to].keep(batch, dispatch.payload)

    def complete(self, work: ServerWork, epoch: Epoch, stage: int) -> Compute:
        attempt = self.current.number
        return Compute(epoch, attempt, stage, len(self.came.get((work.me, epoch, attempt, stage), ())))

    def compute(self, plan: EpochPlan, stages: int) -> None:
        for work in self.servers.values():
            work.open(Open(plan, self.current.number))
        self.distribute(plan)
        for stage in range(stages):
            sent = []
            for work in self.servers.values():
                stepped = work.compute(self.complete(work, plan.epoch, stage))
                counted = [sum(batches) for batches in zip(*stepped.computed.batches.values(), strict=True)]
                to = [dispatch.to for dispatch in stepped.dispatches]
                assert counted == [to.count(server) for server in self.current.servers] or not to
                sent += stepped.dispatches
            self.order.shuffle(sent)
            for dispatch in sent:
                self.keep(dispatch)

    def finish(self, plan: EpochPlan) -> None:
        for work in self.servers.values():
            writes = work.finish(Persist(plan.epoch, self.current.number))
            self.store.write(plan.epoch, writes)
            work.persisted(plan.epoch)

    def commit(self, plan: EpochPlan) -> None:
        self.committed = plan.epoch
        for member in [*self.servers.values(), *self.distributors.values()]:
            member.commit(plan.epoch)

    def run(self, plan: EpochPlan) -> None:
        self.compute(plan, plan.stages)
        self.finish(plan)
        self.commit(plan)

    # ------------------------------------------------------------------ what there is

    def state(self) -> list[bytes]:
        """All that is kept of view groups."""
        tables = [table for table in self.store.tables() if view_group_of(table) is not None]
        found = [values.to_pylist() for table in tables for _, values in self.store.scan(table, 0, BUCKETS, 1 << 60)]
        return [value for values in found for value in values]

    def rows(self, view: str) -> dict[bytes, bytes]:
        node = next(v.node for c in self.compiled.view_groups for v in c.views if v.definition.name == view)
        found = self.store.scan(view_table(node), 0, BUCKETS, 1 << 60)
        return {id.tobytes(): value for ids, values in found for id, value in zip(ids, values.to_pylist(), strict=True)}

    def views(self) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
        return self.rows("spend"), self.rows("big")

    def groups(self) -> dict[int, int]:
        """How many orders each customer has."""
        found: dict[int, int] = {}
        for customer, _ in self.truth.values():
            found[customer] = found.get(customer, 0) + 1
        return found


BUILT = (Slice(1, 0, BUCKETS), Slice(2, 0, BUCKETS))


def begun(seed: int, servers: int, **options: Any) -> Table:
    table = Table(seed, servers, **options)
    table.run(table.plan(1, BUILT))
    return table


def history(seed: int, servers: int, epochs: int = 8) -> list[tuple[dict[bytes, bytes], dict[bytes, bytes]]]:
    table = begun(seed, servers)
    found = []
    for epoch in range(2, epochs):
        table.run(table.plan(epoch))
        found.append(table.views())
        assert len(table.rows("spend")) == len(table.groups())
        assert len(table.rows("big")) == sum(1 for n in table.groups().values() if n > 2)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_any_number_of_servers_writes_the_same_rows(seed: int) -> None:
    assert history(seed, 1) == history(seed, 2) == history(seed, 4)


@pytest.mark.parametrize("seed", range(3))
def test_attempts_that_are_given_up_leave_nothing(seed: int) -> None:
    want = history(seed, 1)
    table = begun(seed, 3)
    fate = random.Random(seed + 100)
    for epoch in range(2, 8):
        plan = table.plan(epoch)
        for _ in range(fate.randrange(3)):
            table.compute(plan, fate.randrange(plan.stages + 1))
            if fate.random() < 0.3:
                name = fate.choice(list(table.servers))
                table.start(name)
            table.generation(skipping=fate.randrange(2))
        table.run(plan)
        if fate.random() < 0.4:
            table.scale(fate.randrange(1, 5))
        assert table.views() == want[epoch - 2]


def test_what_others_did_meanwhile_is_not_overlooked() -> None:
    """A server that had no part in a generation must not believe what it remembers of its buckets."""
    table = begun(5, 2)
    table.run(table.plan(2))
    absent = MemberId("s-1")
    work = table.servers.pop(absent)
    table.generation()
    for epoch in (3, 4, 5):
        table.run(table.plan(epoch))
    table.servers[absent] = work
    table.generation()
    for epoch in (6, 7):
        table.run(table.plan(epoch))
    assert len(table.rows("spend")) == len(table.groups())
    assert table.views() == history(5, 1)[5]


def read_everything(table: Table, epoch: int) -> int:
    """Every row of `spend` that a server answers for at the epoch is the one in the store; returns how many are."""
    node = table.compiled.view_groups[0].views[0].node
    known = b"".join(sorted(table.store._tables[view_table(node)]))
    answered = 0
    for id in np.frombuffer(known, np.uint64).reshape(-1, 1, 2):
        stored = table.store.read(view_table(node), id, epoch + 1).to_pylist()
        for work in table.servers.values():
            answer = work.read(view_table(node), id, Epoch(epoch))
            if answer is not None and answer[0].all():
                assert answer[1].to_pylist() == stored
                answered += 1
    return answered


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_others_wrote_meanwhile_are_not_answered_from_memory(seed: int) -> None:
    """A bucket goes to a server that comes, and back when it leaves: what its first owner remembers is old by then."""
    table = begun(seed, 2)
    for epoch, servers in enumerate((2, 2, 3, 3, 2, 2, 4, 4, 2, 2), 2):
        if servers != len(table.servers):
            table.scale(servers)
        table.run(table.plan(epoch))
        assert read_everything(table, epoch)


def test_rows_of_an_attempt_that_failed_are_not_remembered() -> None:
    table = begun(9, 2)
    plan = table.plan(2)
    table.compute(plan, plan.stages)
    table.finish(plan)
    node = table.compiled.view_groups[0].views[0].node
    ids = np.frombuffer(b"".join(table.rows("spend")), np.uint64).reshape(-1, 2)

    def remembered(epoch: int) -> list[bytes | None]:
        found = [work.recent.read(view_table(node), ids, epoch) for work in table.servers.values()]
        return [value for known, values in found for value in values.filter(pa.array(known)).to_pylist()]

    assert remembered(2) != remembered(1)
    table.generation()
    assert remembered(2) == remembered(1), "epoch 2 is not committed, and will be done again"
    table.run(plan)
    assert read_everything(table, 2)


def test_batches_that_nobody_will_compute_are_let_go() -> None:
    table = begun(4, 1)
    (work,) = table.servers.values()
    plan = table.plan(2)
    table.distribute(plan)
    assert work.batch_buffer.batches
    table.generation()
    assert work.batch_buffer.batches == 0, "of an attempt that was given up"
    table.distribute(plan)
    table.commit(plan)
    assert work.batch_buffer.batches == 0, "of an epoch that is committed"


def test_batches_beyond_memory_go_through_a_file(tmp_path: Path) -> None:
    table = begun(3, 2, directory=tmp_path, memory_limit=256)
    table.run(table.plan(2))
    assert sum(work.batch_buffer.budget.spills for work in table.servers.values()) > 0
    assert table.views() == history(3, 1)[0]
    for work in table.servers.values():
        assert work.batch_buffer.nbytes == 0
        work.close()


def test_reads_are_answered_by_who_owned_the_rows_in_that_epoch() -> None:
    table = begun(9, 2)
    table.run(table.plan(2))
    node = table.compiled.view_groups[0].views[0].node
    rows = table.rows("spend")
    ids = np.frombuffer(b"".join(rows), np.uint64).reshape(-1, 2)
    owners = ring_of(table.current).owners(ids)
    for position, name in enumerate(table.current.servers):
        own, others = ids[owners == position], ids[owners != position]
        work = table.servers[name]
        known, values = work.read(view_table(node), own, Epoch(2)) or (None, None)
        assert known is not None and values is not None
        for id, is_known, value in zip(own, known, values.to_pylist(), strict=True):
            assert not is_known or value == rows[id.tobytes()]
        assert known.any()
        assert work.read(view_table(node), others, Epoch(2)) is None
        assert work.read(view_table(node), own, Epoch(3)) is None, "not committed"


def test_a_chunk_that_is_not_in_memory_is_read_from_input() -> None:
    table = begun(4, 2)
    for epoch in range(2, 8):
        plan = table.plan(epoch)
        rows = sum(d.distributed().rows for d in table.distribute(plan))
        again = sum(d.distributed().rows for d in table.distribute(plan))
        assert again == rows > 0
    assert sum(work.chunks.misses for work in table.distributors.values()) > 0
    assert sum(work.chunks.hits for work in table.distributors.values()) > 0


def test_a_member_that_lacks_a_batch_notices() -> None:
    table = begun(1, 1)
    (work,) = table.servers.values()
    plan = table.plan(2)
    work.open(Open(plan, table.current.number))
    table.distribute(plan)
    complete = table.complete(work, plan.epoch, 0)
    assert complete.batches
    with pytest.raises(
        WorkError, match=rf"stage 0 of epoch 2: {complete.batches + 1} batches came, {complete.batches}"
    ):
        work.compute(replace(complete, batches=complete.batches + 1))


def test_failures_name_the_reason() -> None:
    table = begun(1, 1)
    (work,) = table.servers.values()
    plan = table.plan(2)
    with pytest.raises(WorkError, match=r"epoch 2, attempt 1 is not open on s-0"):
        work.compute(Compute(plan.epoch, table.current.number, 0, 0))
    missing = EpochPlan(Epoch(3), (), {}, 7, "catalog/7", 1, engine=ENGINE_VERSION)
    with pytest.raises(errors.Damaged, match=r"catalog/7"):
        work.open(Open(missing, table.current.number))
    with pytest.raises(WorkError, match=r"planned with 1 stages"):
        work.open(Open(EpochPlan(Epoch(3), (), {}, 1, DOCUMENT, 1, engine=ENGINE_VERSION), table.current.number))
    failed = failure(Epoch(3), Attempt(1), WorkError("division by zero", "spend"))
    assert (failed.view, failed.reason) == ("spend", "division by zero")
    assert failure(Epoch(3), Attempt(1), KeyError("x")).reason == "KeyError: 'x'"


def test_a_plan_of_another_engine_is_refused_by_all_who_carry_it_out() -> None:
    table = begun(1, 1)
    (server,) = table.servers.values()
    plan = replace(table.plan(2), engine=ENGINE_VERSION + 1)
    told = f"planned for engine {ENGINE_VERSION + 1}, this process has engine {ENGINE_VERSION}"
    with pytest.raises(WorkError, match=told):
        server.open(Open(plan, table.current.number))
    for name, distributor in table.distributors.items():
        with pytest.raises(WorkError, match=told):
            distributor.distribute(Distribute(plan, table.current, pieces_of(plan, table.current, name)))


def test_state_stays_in_the_form_that_it_was_made_in_if_the_engine_cannot_read_it() -> None:
    """A view group is of the engine before for as long as it is there, whoever loads it; what is made now is not."""
    want, engines = begun(3, 1), engines_of(NEXT, REBUILDS)
    older, newer = begun(3, 2, engines=engines, made=NEXT), begun(3, 2, engines=engines, made=REBUILDS)
    for epoch in range(2, 6):
        for table in (want, older, newer):
            table.run(table.plan(epoch))
            for name in list(table.servers):
                table.start(name)  # and so has to load what it needs
            table.generation()
        assert older.views() == newer.views() == want.views()
    for table, engine in ((older, NEXT), (newer, REBUILDS)):
        assert table.state() and all(value.startswith(FORMATS[engine].mark) for value in table.state())


def test_state_in_a_form_that_a_process_does_not_have_is_refused() -> None:
    table = begun(1, 1, engines=engines_of(NEXT, REBUILDS), made=NEXT)
    table.engines = engines_of(REBUILDS, REBUILDS)
    (name,) = table.servers
    table.start(name)
    table.generation()
    told = f"state of view group 1 is in the form of engine {NEXT}; this process has engine {REBUILDS}"
    with pytest.raises(WorkError, match=told):
        table.servers[name].open(Open(table.plan(2), table.current.number))


def test_a_store_that_fails_in_the_middle_can_be_asked_again() -> None:
    table = begun(2, 1)
    plan = table.plan(2)
    table.start(MemberId("s-0"))
    table.generation()

    def fail(call: str, moment: Moment) -> None:
        if call == "read":
            raise errors.StoreUnavailable("the store does not answer")

    table.store.faults = fail
    with pytest.raises(errors.StoreUnavailable):
        table.compute(plan, plan.stages)
    table.store.faults = None
    table.generation()
    table.run(plan)
    assert len(table.rows("spend")) == len(table.groups())
