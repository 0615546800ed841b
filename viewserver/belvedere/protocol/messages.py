"""What the members of a pool say to each other, and the records they agree on.

Records (`PoolState` in ZooKeeper; `Generation`, `EpochPlan` in the store) and messages are frozen dataclasses of plain
values; `belvedere.protocol.wire` writes them as JSON. A field that a reader does not know is ignored and one that is
missing has its default, so protocol N can add fields that N-1 lives without.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NewType, TypeAlias

from belvedere.protocol.exactly_once import InputPiece, Seq, SourceId
from belvedere.protocol.ring import MemberId

PROTOCOL = 3
"""The newest protocol that this version speaks; it also speaks the one before (if there is one).

2: plans can be amended. Members of protocol 1 would go on to compute views that have failed.
3: plans can repair, and take over what was computed aside. Members of protocol 2 would compute on the rows that are to
be replaced, and take all rows in place of what has changed."""
AMENDING = 2
"""The first protocol in which plans are amended."""
REPAIRING = 3
"""The first protocol in which plans repair."""
ASIDE = 3
"""The first protocol in which view groups are computed aside."""

UNTOLD_ENGINE = 2
"""The engine of members, records and plans that do not tell theirs: of versions from before they did."""

CLOCK_OFF_MS = 5000
"""By how much clocks of members may differ; a leader whose clock is certainly further off does not lead."""

Epoch = NewType("Epoch", int)
Attempt = NewType("Attempt", int)
"""Number of a generation. Grows with every change of members or leader."""
NO_ATTEMPT = Attempt(-1)
"""Of who has no part in any generation."""
Term = NewType("Term", int)
"""Number of a leader."""
Stage: TypeAlias = int

NOBODY = MemberId("")

NEVER = Epoch(0)
"""The epoch before the first."""


class Role(enum.Enum):
    COORDINATOR = "coordinator"
    DISTRIBUTOR = "distributor"
    VIEWSERVER = "viewserver"
    STORE = "store"


# --- records


@dataclass(frozen=True)
class Member:
    """Who is there: an ephemeral node. `leaving`: asks to be withdrawn."""

    id: MemberId
    role: Role
    address: str = ""
    oldest_protocol: int = PROTOCOL
    newest_protocol: int = PROTOCOL
    cluster: str = ""
    leaving: bool = False
    oldest_engine: int = UNTOLD_ENGINE
    newest_engine: int = UNTOLD_ENGINE
    """Of those that compute."""


@dataclass(frozen=True)
class Generation:
    """Who takes part: the members of attempt `number`. The ring is a function of its version and the servers."""

    number: Attempt
    term: Term
    leader: MemberId
    ring: int
    servers: tuple[MemberId, ...]
    """Sorted, as on the ring: positions in it are what owner tables hold."""
    distributors: tuple[MemberId, ...]
    protocol: int = PROTOCOL
    engine: int = UNTOLD_ENGINE


@dataclass(frozen=True)
class Slice:
    """The buckets `[first, stop)` of its leaves that a view group under construction takes in an epoch.

    `since`: its state was computed aside, from its leaves as they are after that epoch, and it takes what they differ
    from that in. Until that epoch and all before it are needed. `awaits`: it is being computed, so the slice is empty
    and the state is nobody's to touch; `since` 0 then: not yet, since something below it is not ready. `over`: the view
    groups that it reads."""

    view_group: int
    first: int
    stop: int
    since: Epoch = NEVER
    awaits: bool = False
    over: tuple[int, ...] = ()


@dataclass(frozen=True)
class ViewVersion:
    """A view as it was made with a view group; what is made anew is another version, and may succeed."""

    name: str
    view_group: int


@dataclass(frozen=True)
class Repair:
    """Rows to be replaced before the changes of an epoch: the document that has them, and a digest of its bytes. `at`:
    the epoch for which they were computed; what was written later is left as it is."""

    document: str
    digest: str
    at: Epoch


@dataclass(frozen=True)
class EpochPlan:
    """Everything that decides what an epoch is. Durable before anyone works on it, and never changed: a plan that is
    amended is another document."""

    epoch: Epoch
    pieces: tuple[InputPiece, ...]
    positions: Mapping[SourceId, Seq]
    """Where each source stands after the epoch (all sources that were ever planned and are not forgotten)."""
    catalog: int
    """Version of the catalog; 0 is the empty one, which has no document."""
    catalog_document: str
    """Where it is: leaders that do not know of each other may write different catalogs of one version."""
    stages: int
    """How many stages that catalog has: everyone computes them alike, and the barrier counts them."""
    slices: tuple[Slice, ...] = ()
    """One for each view group under construction. The next plan goes on where `stop` was, until it is 16,384."""
    engine: int = 1
    made: tuple[int, ...] = (0,)
    """The engines under which view groups of the catalog were made: state of theirs may be in an older form than the
    plan's engine writes (`belvedere.protocol.engines`). 0: by a version that did not tell."""
    oldest: int = 0
    """When the oldest of its changes was received (milliseconds), 0 if there is none."""
    rows: int = 0
    size: int = 0
    """Bytes of INPUT."""
    amends: str = ""
    """The document of the plan whose place this one takes: the same, but for views that failed."""
    repair: Repair | None = None


@dataclass(frozen=True)
class Pointer:
    """A plan that is durable: the document that holds it and a digest of its bytes."""

    epoch: Epoch
    document: str
    digest: str
    amendment: int = 0
    """How often the plan was amended."""


@dataclass(frozen=True)
class PoolState:
    """The one record in ZooKeeper. Who may write it is decided by its version and its term."""

    cluster: str
    term: Term = Term(0)
    leader: MemberId = NOBODY
    generation: Attempt = Attempt(0)
    committed: Epoch = NEVER
    committed_plan: Pointer | None = None
    open: tuple[Pointer, ...] = ()
    protocol: int = PROTOCOL
    stalled: str = ""
    """Why epochs do not get through, for people."""
    engine: int = 0
    """That of the pool's plans; 0: it never had members that compute, or is of a version that did not say."""


# --- messages


@dataclass(frozen=True)
class Begin:
    """Leader to everyone in the generation: do this epoch. The first `Begin` of a generation begins the generation."""

    generation: Generation
    plan: EpochPlan
    committed: Epoch


Counts: TypeAlias = Mapping[Stage, tuple[int, ...]]
"""Batches for later stages, of each server of the generation by its position; stages without any are left out. Numbers
without names: a report has one for each server, and the leader of n servers reads n of them for each stage."""


@dataclass(frozen=True)
class Sent:
    """To the leader: I have sent all that I have for later stages after `stage` (-1: a distributor)."""

    epoch: Epoch
    attempt: Attempt
    sender: MemberId
    stage: Stage
    batches: Counts
    rows: int = 0
    ring: str = ""
    """Digest of the ring by which they were sent."""


@dataclass(frozen=True)
class Expect:
    """Leader to a server: so many batches, from all senders together, are all that there is for the stage."""

    epoch: Epoch
    attempt: Attempt
    stage: Stage
    batches: int


@dataclass(frozen=True)
class Done:
    """A server to the leader: all stages are computed, and everything is durable in the store."""

    epoch: Epoch
    attempt: Attempt
    member: MemberId
    figures: Mapping[str, float] = field(default_factory=dict)
    """Load figures for the leader's metrics and for back-pressure (rows received, rows written, bytes, ...)."""


@dataclass(frozen=True)
class Failed:
    """To the leader: this attempt cannot succeed here."""

    epoch: Epoch
    attempt: Attempt
    member: MemberId
    reason: str
    view: str = ""
    """Whose computing it was, for people."""
    views: tuple[ViewVersion, ...] = ()
    """Those to blame: computing them failed, and neither a disk, memory nor the store did."""


@dataclass(frozen=True)
class Committed:
    """Leader to everyone: the epoch is committed."""

    epoch: Epoch


@dataclass(frozen=True)
class Idle:
    """Leader to everyone in a new generation when no epoch is open: adopt it, there is nothing to do yet. Also to
    members that are there and have no part in it: give up what you do in a lower one."""

    generation: Generation
    committed: Epoch


@dataclass(frozen=True)
class Released:
    """Leader to a member that asked to leave: nothing of yours is needed any more."""

    member: MemberId


@dataclass(frozen=True)
class Batch:
    """Head of a batch of rows; the rows travel beside it. `order` sorts base batches (piece, part); `number` tells
    repeats apart: each sender counts its batches to each receiver in an attempt of an epoch from 0."""

    epoch: Epoch
    attempt: Attempt
    stage: Stage
    sender: MemberId
    number: int
    order: int = 0
    rows: int = 0


Message: TypeAlias = Begin | Sent | Expect | Done | Failed | Committed | Idle | Released | Batch
