"""Between the role machines and their drivers: events that a driver reports, instructions that it carries out.

A driver (a real process in `belvedere.cluster`, or the simulator) calls `machine.handle(event)` from one thread and
carries out what comes back, in order. What takes time (the store, ZooKeeper, computing) is done elsewhere and reported
as an event later; events of work that nobody waits for any more are ignored by the machine, never an error.

SUSPENDED: while the session may have ended, a driver carries out nothing that others could see (it keeps the
instructions); LOST: it throws the machine away and begins again with a new incarnation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from belvedere.protocol.exactly_once import Chunk, ChunkId, InputPiece, Seq, SourceId
from belvedere.protocol.messages import (
    Attempt,
    Batch,
    Counts,
    Epoch,
    EpochPlan,
    Generation,
    Member,
    Message,
    PoolState,
    Repair,
    Stage,
    ViewVersion,
)
from belvedere.protocol.ring import MemberId

# ---------------------------------------------------------------------- every role


@dataclass(frozen=True)
class Tick:
    """Time passes. Every 10 to 50 ms."""

    now: int


@dataclass(frozen=True)
class Received:
    """A message has come; the payload of a batch stays with the driver."""

    sender: MemberId
    message: Message


@dataclass(frozen=True)
class Send:
    to: MemberId
    message: Message


@dataclass(frozen=True)
class Note:
    """Something people should know: a log line and perhaps a metric."""

    event: str
    fields: Mapping[str, Any] = field(default_factory=dict)


# ---------------------------------------------------------------------- view server


@dataclass(frozen=True)
class Computed:
    """A stage is computed, and its batches are handed to the transport: `batches` counts them."""

    epoch: Epoch
    attempt: Attempt
    stage: Stage
    batches: Counts
    rows: int = 0
    ring: str = ""
    """Digest of the ring by which they were sent."""


@dataclass(frozen=True)
class Persisted:
    """What the epoch changed is durable in the store."""

    epoch: Epoch
    attempt: Attempt
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkFailed:
    """Adopt, Open, Compute, Persist or Distribute could not be done."""

    epoch: Epoch
    attempt: Attempt
    reason: str
    view: str = ""
    views: tuple[ViewVersion, ...] = ()
    """See `Failed`."""


@dataclass(frozen=True)
class Adopt:
    """A new generation: forget batches of lower attempts; undo everything after `committed`; own the buckets that the
    ring of the generation gives to this server."""

    generation: Generation
    committed: Epoch


@dataclass(frozen=True)
class Open:
    """Begin an epoch: configure the shard for the plan's catalog, begin with its slices."""

    plan: EpochPlan
    attempt: Attempt


@dataclass(frozen=True)
class Keep:
    """Hold the payload of this batch until its stage is computed. (A batch without this instruction is dropped.)"""

    batch: Batch


@dataclass(frozen=True)
class Compute:
    """Give the kept batches of the stage to the shard, run it, send what comes out; then `Computed`. `batches`: so many
    came; whoever has kept another number has lost one, and fails."""

    epoch: Epoch
    attempt: Attempt
    stage: Stage
    batches: int


@dataclass(frozen=True)
class Persist:
    """Finish the epoch in the shard. Then read the record, and unless the attempt is `viewserver.overtaken` write the
    changes to the store, again and again until it is done or a higher attempt is adopted; then `Persisted`. The next
    epoch may be opened meanwhile."""

    epoch: Epoch
    attempt: Attempt


@dataclass(frozen=True)
class GiveUp:
    """The pool goes on without this server, in this generation: drop all work of lower attempts, and write nothing
    more of it."""

    generation: Attempt


@dataclass(frozen=True)
class Commit:
    """The epoch is committed: it will not be undone, and it may be read."""

    epoch: Epoch


ServerEvent: TypeAlias = Tick | Received | Computed | Persisted | WorkFailed
ServerInstruction: TypeAlias = Send | Note | Adopt | Open | Keep | Compute | Persist | GiveUp | Commit

# ---------------------------------------------------------------------- distributor (INPUT: see exactly_once.Filter)


@dataclass(frozen=True)
class Distribute:
    """Send these pieces of INPUT (with their index in the plan, which is the `order` of their batches) to the owners
    of their rows on the ring of the generation; then `Distributed`."""

    plan: EpochPlan
    generation: Generation
    pieces: tuple[tuple[int, InputPiece], ...]


@dataclass(frozen=True)
class Distributed:
    epoch: Epoch
    attempt: Attempt
    batches: Counts
    rows: int = 0
    ring: str = ""
    """Digest of the ring by which they were sent."""


DistributorEvent: TypeAlias = Tick | Received | Distributed | WorkFailed
DistributorInstruction: TypeAlias = Send | Note | Distribute | Commit

# ---------------------------------------------------------------------- coordinator


@dataclass(frozen=True)
class MembersChanged:
    members: tuple[Member, ...]


@dataclass(frozen=True)
class Unreachable:
    """A member is certainly gone although its node lives for a while yet: nobody listens at its address any more. A
    guess is allowed; all it costs is a generation without the member."""

    member: MemberId
    reason: str


@dataclass(frozen=True)
class Elected:
    """The election's hint: it is this one's turn (or not any more)."""

    turn: bool


@dataclass(frozen=True)
class SessionChanged:
    """`connected`: False while suspended."""

    connected: bool


@dataclass(frozen=True)
class RecordRead:
    """The answer to `ReadRecord`. `state` None: there is none yet; `failed`: no answer."""

    request: int
    state: PoolState | None
    version: int = -1
    clock: int = 0
    failed: bool = False


@dataclass(frozen=True)
class Swapped:
    """The answer to `Swap` (or `Create`): what happened, as far as known."""

    request: int
    outcome: str
    """`done`, `conflict` or `unknown`"""
    version: int = -1
    clock: int = 0


@dataclass(frozen=True)
class DocumentWritten:
    request: int


@dataclass(frozen=True)
class DocumentRead:
    request: int
    data: bytes | None


@dataclass(frozen=True)
class InputRead:
    """The INPUT index and the listing of sources; the listing was read before the index."""

    request: int
    chunks: Sequence[Chunk]
    sources: Sequence[SourceFact]
    loading: bool = False
    """Rows of base tables that were there before their log was followed are not all in INPUT and committed yet."""
    computed: tuple[tuple[int, Epoch], ...] = ()
    """View groups whose state was computed aside and is in the store, each with the epoch that it is of."""


@dataclass(frozen=True)
class SourceFact:
    """What the source system says of a source (see `belvedere.backend.seam.SourceInfo`)."""

    id: SourceId
    parents: frozenset[SourceId]
    last: Seq | None
    node: str = ""
    durable_end: bool = False
    """It has ended where what is durable of it ends: at `last`, or at its position if that is greater, since what is
    committed leaves INPUT."""


@dataclass(frozen=True)
class StoreFailed:
    """A store request got no answer; it may have happened. The machine asks again after a while."""

    request: int
    reason: str


@dataclass(frozen=True)
class CatalogOffered:
    """DDL: a new catalog, made from the one with version `version - 1`. `ticket` names the request in `CatalogTaken`.

    `stages`: of the new catalog. `view_groups`: those of it that have to be built. `present`: all of them; one that
    was under construction and is not there any more is given up. `loads`: it has a new table whose rows are elsewhere
    and will be loaded. `made`: the engines under which its view groups were made. `aside`: those of `view_groups` whose
    state is computed by somebody else. `over`: of each of `view_groups` those that it reads."""

    ticket: int
    version: int
    document: bytes
    stages: int
    view_groups: tuple[int, ...] = ()
    present: tuple[int, ...] = ()
    loads: bool = False
    made: tuple[int, ...] = ()
    aside: tuple[int, ...] = ()
    over: tuple[tuple[int, tuple[int, ...]], ...] = ()


@dataclass(frozen=True)
class RepairOffered:
    """Somebody has computed what rows should be, as of `repair.at`, for this version of the catalog and this engine.
    `ticket` names the request in `RepairTaken`. `waits_for`: view groups that read the tables; while one of them is
    being built nothing is replaced."""

    ticket: int
    repair: Repair
    catalog: int
    engine: int
    waits_for: tuple[int, ...] = ()


@dataclass(frozen=True)
class RepairTaken:
    """The repair of this ticket is in a plan that is in the record (or `refused`). `again`: the same may be offered
    once more; else it has to be computed anew."""

    ticket: int
    epoch: Epoch
    refused: str = ""
    again: bool = False


@dataclass(frozen=True)
class AmendedCatalog:
    """`present`: view groups of which something is still computed."""

    version: int
    document: bytes
    stages: int
    present: tuple[int, ...]


@dataclass(frozen=True)
class CatalogsAmended:
    """The answer to `AmendCatalogs`, in its order. `refused`: why the views cannot be set aside; then there is none."""

    request: int
    catalogs: tuple[AmendedCatalog, ...]
    refused: str = ""


@dataclass(frozen=True)
class DocumentsListed:
    request: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class ReadRecord:
    request: int


@dataclass(frozen=True)
class Create:
    request: int
    state: PoolState


@dataclass(frozen=True)
class Swap:
    request: int
    state: PoolState
    version: int


@dataclass(frozen=True)
class WriteDocument:
    request: int
    name: str
    data: bytes


@dataclass(frozen=True)
class ReadDocument:
    request: int
    name: str


@dataclass(frozen=True)
class AmendCatalogs:
    """Make catalogs in which these views (and why), and all that read them, have failed since the epoch. `catalogs`: of
    each the document that it is made from and the version that it gets. `building`: the view groups that were
    not complete before the epoch."""

    request: int
    epoch: Epoch
    views: tuple[tuple[ViewVersion, str], ...]
    catalogs: tuple[tuple[str, int], ...]
    building: tuple[int, ...]


@dataclass(frozen=True)
class ReadInput:
    request: int


@dataclass(frozen=True)
class ListDocuments:
    """The names of all documents with one of these prefixes."""

    request: int
    prefixes: tuple[str, ...]


@dataclass(frozen=True)
class Publish:
    """The epoch is committed: let readers know (the versioned row in the store, waiting clients), then `Published`.
    Best effort: a later one covers an earlier one, unless names mean something else from that one on."""

    plan: EpochPlan


@dataclass(frozen=True)
class Published:
    """Readers of the store can know that this epoch is committed."""

    epoch: Epoch


@dataclass(frozen=True)
class RemoveChunks:
    """INPUT that no plan will need. Best effort."""

    chunks: tuple[ChunkId, ...]


@dataclass(frozen=True)
class RemoveDocuments:
    """Plans, catalogs, pins and horizons that nobody will read again. Best effort."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class ForgetSources:
    """Sources that ended and are committed to their end (`Store.forget_sources`). Best effort, said again; but not
    before the newest `Publish` given earlier has succeeded: readers take a source that is neither listed nor in the
    published positions for one that ended long ago."""

    sources: tuple[SourceId, ...]


@dataclass(frozen=True)
class Collect:
    """Store.collect. Best effort, repeated with greater bounds."""

    horizon: Epoch
    tombstones: Epoch


@dataclass(frozen=True)
class Forget:
    """A member that is gone: drop what is queued for it."""

    member: MemberId


@dataclass(frozen=True)
class Resign:
    """Step out of the election and back in (at the end of the queue)."""

    reason: str


@dataclass(frozen=True)
class CatalogTaken:
    """The catalog of this ticket is in a plan that is in the record (or `refused`: another one came first, or this
    coordinator does not lead)."""

    ticket: int
    epoch: Epoch
    refused: str = ""


CoordinatorEvent: TypeAlias = (
    Tick
    | Received
    | MembersChanged
    | Unreachable
    | Elected
    | SessionChanged
    | RecordRead
    | Swapped
    | DocumentWritten
    | DocumentRead
    | InputRead
    | StoreFailed
    | CatalogOffered
    | RepairOffered
    | CatalogsAmended
    | DocumentsListed
    | Published
)
CoordinatorInstruction: TypeAlias = (
    Send
    | Note
    | ReadRecord
    | Create
    | Swap
    | WriteDocument
    | ReadDocument
    | AmendCatalogs
    | ReadInput
    | ListDocuments
    | ForgetSources
    | Publish
    | RemoveChunks
    | RemoveDocuments
    | Collect
    | Forget
    | Resign
    | CatalogTaken
    | RepairTaken
)
