"""What clients ask members, and what they answer: calls and their payloads, and the row that tells what is committed.

    to a coordinator   TOPOLOGY    b""       -> Topology      any coordinator answers
                       COMMITTED   Ask       -> Seen          the leader; waits until there is something newer
                       DDL         Ddl       -> Taken         the leader, when the change is in a plan
                       STATUS      b""       -> JSON          the leader; for people, see `status_json`
                       RELOAD      Reload    -> ReloadReport  the leader; asks for it, and how far it is
                       LOOK        Look      -> LookSeen      the leader; compares a base table with where it comes from
    to a view server   READ        ReadRows  -> RowsRead      rows of a view that it remembers
    to the store       base writes, and versioned reads: `belvedere.backend.served`

A coordinator that does not lead refuses what only the leader can do with `PeerUnavailable`; the client asks for the
topology again and repeats. Everything can be repeated: reads change nothing, and a change of the catalog carries a
ticket that the catalog remembers.

Readers learn what is committed from the leader, or from the store: whoever carries out `Publish` calls `publish`.
An epoch whose row is missing (publishing is best effort) is not read as such: `at` means the newest one that has a row.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from belvedere import errors
from belvedere.backend.seam import Store, TableWrite
from belvedere.model.reloads import ReloadReport
from belvedere.protocol.exactly_once import Seq, SourceId
from belvedere.protocol.messages import NEVER, Epoch, EpochPlan, Generation, Member
from belvedere.protocol.ring import BUCKETS, MemberId
from belvedere.protocol.wire import Codec

TOPOLOGY = "topology"
COMMITTED = "committed"
DDL = "ddl"
STATUS = "status"
RELOAD = "reload"
REPAIR = "repair"
LOOK = "look"
READ = "read"

LONGEST_WAIT_MS = 10_000
"""How long a coordinator lets an `StatusCall` wait at most."""

COMMITTED_TABLE = "committed"
"""The versioned table with one row: what is committed, as of the epoch that is its version."""
COMMITTED_ID = np.zeros((1, 2), np.uint64)


# ---------------------------------------------------------------------- what is committed


@dataclass(frozen=True)
class CommittedRow:
    """An epoch that readers may read, and how."""

    epoch: Epoch = NEVER
    positions: Mapping[SourceId, Seq] = field(default_factory=dict)
    catalog: int = 0
    catalog_document: str = ""
    """Empty: the empty catalog, which has no document."""
    building: tuple[int, ...] = ()
    """View groups that are not complete at this epoch."""


def committed_of(plan: EpochPlan) -> CommittedRow:
    """What readers need to know of a committed plan."""
    building = tuple(part.view_group for part in plan.slices if part.stop < BUCKETS)
    return CommittedRow(plan.epoch, dict(plan.positions), plan.catalog, plan.catalog_document, building)


def publish(store: Store, plan: EpochPlan) -> None:
    """Let readers of the store know that the plan is committed."""
    value = pa.array([encode(committed_of(plan))], pa.binary())
    store.write(plan.epoch, [TableWrite(COMMITTED_TABLE, COMMITTED_ID, value, logged=True)])


NEWEST = 1 << 62
"""Later than every epoch."""


class Readable(Protocol):
    """What of a store it takes to read versioned rows."""

    def read(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray: ...


def read_committed(store: Readable, upto: int) -> CommittedRow | None:
    """The newest epoch up to this one that was published; None if there is none, or none that is kept."""
    try:
        value = store.read(COMMITTED_TABLE, COMMITTED_ID, upto + 1)[0].as_py()
    except errors.BelowHorizon:
        return None
    return None if value is None else decode(value, CommittedRow)


# ---------------------------------------------------------------------- coordinator


@dataclass(frozen=True)
class Topology:
    """Who is there, as this coordinator sees it."""

    cluster: str
    leader: MemberId
    members: tuple[Member, ...]
    generation: Generation | None = None
    """The newest that this coordinator knows of; its ring says which view server owns what."""
    retention_ms: int = 0
    """How long an epoch can be read at least after a later one was committed."""
    store: str = ""
    """URL of the backend, if it is not the member of role store."""


@dataclass(frozen=True)
class StatusCall:
    """Answer when an epoch after this one is committed, or when that takes longer than `wait_ms`."""

    after: int = -1
    wait_ms: int = 0


@dataclass(frozen=True)
class Seen:
    """`generation`: number of the current one; a client that knows another one asks for the topology."""

    committed: CommittedRow
    generation: int = 0
    stalled: str = ""
    """Why epochs do not get through, if they do not."""


@dataclass(frozen=True)
class DdlCall:
    """A change of the catalog. `ticket` is the client's own, unique name for it: repeating a request that has happened
    changes nothing."""

    ticket: str
    text: str
    manifest: bool = False
    """Whether the text is YAML, not SQL."""
    rebuild: bool = False
    """The text is the name of a view, of which a new version is to be made, as it is defined."""


@dataclass(frozen=True)
class ReloadCall:
    """A table of another system is to be read again. `id`: the client's own, unique name for it."""

    id: str
    table: str
    start: str = ""
    stop: str = ""


@dataclass(frozen=True)
class RepairCall:
    """Rows are to be replaced (`protocol.messages.Repair`): they were computed for this version of the catalog and this
    engine, and are read by these view groups. Repeating it changes nothing."""

    document: str
    digest: str
    at: Epoch
    catalog: int
    engine: int
    groups: tuple[int, ...] = ()


@dataclass(frozen=True)
class RepairSeen:
    """The repair is in the plan of this epoch, or `refused`; `again`: it may be offered once more as it is."""

    epoch: Epoch
    refused: str = ""
    again: bool = False


@dataclass(frozen=True)
class LookCall:
    """A table of another system is to be compared, and not corrected. `id`: as with `ReloadCall`."""

    id: str
    table: str


@dataclass(frozen=True)
class LookSeen:
    """How far that is. `rows` of the other system; `late`: rows that differed once and not twice; `undecided`: rows
    that were written all the time. `examples`: ids of rows that are missing, extra and different, hexadecimal."""

    done: bool
    rows: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    late: int = 0
    undecided: int = 0
    examples: tuple[tuple[str, ...], ...] = ((), (), ())


@dataclass(frozen=True)
class Taken:
    """The change is there from this epoch on. `view_groups`: those to be built before all of it can be read."""

    epoch: Epoch
    catalog: int
    view_groups: tuple[int, ...] = ()
    aside: tuple[int, ...] = ()
    """Those of them that wait for somebody else to compute them, or what they read: nobody knows how long."""


def status_json(status: Mapping[str, Any]) -> bytes:
    """Plain values by name: epoch, lag_ms, leader, generation, members (id, role, address, share of the ring, figures),
    sources, builds, stalled, pins."""
    return json.dumps(status, default=str).encode()


# ---------------------------------------------------------------------- view server


@dataclass(frozen=True)
class ReadRows:
    """Rows of a view's table (its name in the store) at an epoch. Their ids travel beside it."""

    table: str
    epoch: Epoch
    generation: int


@dataclass(frozen=True)
class RowsRead:
    """`refused`: why this server cannot know (it did not own the buckets, or has not processed the epoch); then there
    are no rows, and the store has to be asked. `generation`: the newest that the server knows."""

    generation: int
    refused: str = ""


def encode_read(request: ReadRows, ids: np.ndarray) -> bytes:
    return _join(encode(request), np.ascontiguousarray(ids, np.uint64).tobytes())


def decode_read(data: bytes) -> tuple[ReadRows, np.ndarray]:
    head, body = _split(data)
    if len(body) % 16:
        raise errors.Damaged(f"call {READ}: {len(body)} bytes of ids, which are 16 bytes each")
    return decode(head, ReadRows), np.frombuffer(body, np.uint64).reshape(-1, 2)


def encode_rows(answer: RowsRead, known: np.ndarray | None = None, values: pa.BinaryArray | None = None) -> bytes:
    """`known`: a mask of the ids that the server can answer for; `values`: null where there is no such row."""
    if known is None or values is None:
        return _join(encode(answer), b"")
    batch = pa.record_batch({"known": pa.array(known, pa.bool_()), "value": values})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return _join(encode(answer), sink.getvalue().to_pybytes())


def decode_rows(data: bytes) -> tuple[RowsRead, np.ndarray | None, pa.BinaryArray | None]:
    head, body = _split(data)
    answer = decode(head, RowsRead)
    if answer.refused or not len(body):
        return answer, None, None
    table = pa.ipc.open_stream(pa.py_buffer(body)).read_all().combine_chunks()
    known = table["known"].combine_chunks().to_numpy(zero_copy_only=False)
    return answer, known, table["value"].combine_chunks()


# ---------------------------------------------------------------------- bytes

_LENGTH = struct.Struct("<I")
_CODEC = Codec(
    [
        CommittedRow,
        Topology,
        StatusCall,
        Seen,
        DdlCall,
        Taken,
        ReadRows,
        RowsRead,
        ReloadCall,
        ReloadReport,
        RepairCall,
        RepairSeen,
        LookCall,
        LookSeen,
    ]
)
T = TypeVar("T")

encode = _CODEC.encode
"""The bytes of a request or an answer without rows."""


def decode(data: bytes | memoryview, expected: type[T]) -> T:
    """The reverse of `encode`, of the class that is expected."""
    found = _CODEC.decode(data)
    if not isinstance(found, expected):
        raise errors.Incompatible(f"expected {expected.__name__}, found {type(found).__name__}")
    return found


def _join(head: bytes, body: bytes) -> bytes:
    return _LENGTH.pack(len(head)) + head + body


def _split(data: bytes) -> tuple[memoryview, memoryview]:
    view = memoryview(data)
    if len(view) < _LENGTH.size or len(view) < _LENGTH.size + _LENGTH.unpack_from(view)[0]:
        raise errors.Damaged(f"a call of {len(view)} bytes that ends in its head")
    end = _LENGTH.size + _LENGTH.unpack_from(view)[0]
    return view[_LENGTH.size : end], view[end:]
