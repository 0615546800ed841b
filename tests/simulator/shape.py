"""What a history is like: drawn from its seed before anything happens.

Half of the histories are drawn freely. The others have a theme, something that goes wrong again and again in the
same way: some bugs need two or three unlikely things at once, and no free draw has them often enough.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.simulator.scheduler import MS

TINY_MEMORY = 1_000
"""Bytes of a view server that spills nearly everything it receives."""


@dataclass
class Shape:
    """Sizes, habits, and how bad it is. Probabilities are per message, call or proposal; times are microseconds unless
    they say otherwise."""

    theme: str
    # the cluster
    coordinators: int
    distributors: int
    viewservers: int
    memory: int
    compute_time: int
    epoch_ms: int
    retention_ms: int
    quiet_ms: int
    """How long silence is borne."""
    shun_ms: int
    """How long a member that was silent or could not be reached is left out."""
    keys: int
    """How many times as many keys as there are at least."""
    plan_rows: int
    plan_memory: int
    """How much a plan may take, for each view server: rows, and bytes that go between members."""
    # users
    seconds: int
    writes: int
    deletes: float
    ddl: int
    """Statements after the first catalog."""
    readers: int
    reads: int
    """Of each reader."""
    pins: float
    subscribers: int
    users: int
    """Of those who change the catalog."""
    # faults
    faults: int
    kinds: frozenset[str]
    """Names of the kinds of faults that it knows; empty: any."""
    leader_fails: float
    server_sleeps: float
    """How often a view server is stopped when it is about to write."""
    clocks_are_off: bool
    delay: int
    lost: float
    repeated: float
    slow: float
    zookeeper_unknown: float
    zookeeper_slow: float
    store_delay: int
    store_fails: float
    store_late: float
    late_writes: float
    store_unreadable: float
    hangs: float
    """How often a view server hangs before a stage, for longer than silence is borne, its session alive."""
    forgets: float
    """How often a view server has nothing in its cache when an epoch begins."""
    loads_wait: float
    """How often the store takes long to answer in the middle of a stage."""
    spill_fails: float
    """Share of what is spilled that the disk has no room for."""
    damaged: float
    zookeeper_stale: float
    leases: bool
    """Whether processes ask their clocks if their session may have ended."""
    probes: bool
    """Whether leaders try connections to members that an epoch waits for."""
    push_repeats: float
    push_batch: int
    release: int = 0
    """Of the software that the cluster begins with: one of `versions.RELEASES`."""


THEMES = (
    "late writers",
    "comings and goings",
    "leaders",
    "doubt",
    "slow network",
    "late computation",
    "left out",
    "versions",
)


def draw(rng: random.Random, theme: str | None = None) -> Shape:
    """`theme`: that one, whatever is drawn."""
    choice = rng.choice
    shape = Shape(
        theme=choice((*("",) * len(THEMES), *THEMES)),
        coordinators=choice((1, 2, 3)),
        distributors=choice((1, 2, 3)),
        viewservers=choice((1, 2, 3, 3, 4)),
        memory=choice((1 << 30, 1 << 30, 1 << 30, TINY_MEMORY)),
        compute_time=choice((500, 2 * MS, 15 * MS)),
        epoch_ms=choice((100, 200, 400)),
        retention_ms=choice((300, 2_000)),
        quiet_ms=choice((600, 600, 3_000)),
        shun_ms=choice((500, 500, 5_000)),
        keys=choice((1, 1, 1, 1, 20)),
        plan_rows=choice((*(200_000,) * 4, 3)),
        plan_memory=choice((*(256 << 20,) * 4, 4_000)),
        seconds=choice((3, 5)),
        writes=choice((8, 16, 30)),
        deletes=0.3,
        ddl=choice((0, 0, 1, 2, 4)),
        readers=choice((1, 2)),
        reads=14,
        pins=choice((0.0, 0.0, 0.3)),
        subscribers=choice((0, 1)),
        users=choice((1, 2)),
        faults=choice((1, 3, 6, 10)),
        kinds=frozenset(),
        leader_fails=choice((0.0, 0.0, 0.06)),
        server_sleeps=choice((0.0, 0.0, 0.02)),
        clocks_are_off=rng.random() < 0.3,
        delay=choice((200, 1 * MS, 5 * MS)),
        lost=choice((0, 0, 0.02, 0.1)),
        repeated=choice((0, 0.02, 0.15)),
        slow=choice((0, 0.02, 0.1)),
        zookeeper_unknown=choice((0, 0.05, 0.3)),
        zookeeper_slow=choice((0, 0.05)),
        store_delay=choice((500, 3 * MS, 20 * MS)),
        store_fails=choice((0, 0.03, 0.15)),
        store_late=choice((0, 0.05, 0.2)),
        late_writes=choice((0, 0.05, 0.2)),
        store_unreadable=choice((0, 0, 0.02)),
        hangs=choice((0, 0, 0, 0.02)),
        forgets=choice((0, 0.3)),
        loads_wait=choice((0, 0, 0, 0.03)),
        spill_fails=choice((0, 0.1)),
        damaged=choice((0, 0, 0.03)),
        zookeeper_stale=choice((0, 0.5, 0.5)),
        leases=rng.random() < 0.5,
        probes=rng.random() < 0.3,
        push_repeats=choice((0, 0.1, 0.4)),
        push_batch=choice((1, 2, 5)),
    )
    if theme is not None:
        shape.theme = theme
    _apply_theme(shape, rng)
    return shape


def _apply_theme(shape: Shape, rng: random.Random) -> None:
    match shape.theme:
        case "late writers":
            # A write arrives when the row is long deleted, and the tombstone might be gone.
            shape.late_writes, shape.store_late, shape.store_fails, shape.store_delay = 0.4, 0.0, 0.0, 500
            shape.retention_ms, shape.pins, shape.deletes, shape.epoch_ms = 300, 0.0, 0.5, 100
            shape.faults, shape.writes, shape.seconds, shape.ddl = 1, 30, 5, 0
        case "comings and goings":
            # Buckets go back and forth between servers.
            shape.kinds = frozenset(("visit", "scale up", "scale down", "expire"))
            shape.viewservers = rng.choice((2, 3))
            shape.faults, shape.writes, shape.epoch_ms, shape.store_late = 9, 30, 100, 0.0
        case "leaders":
            # Leaders that are lost in the middle of everything, wake up later, and do not know the time.
            shape.kinds = frozenset(("clock jumps", "demote", "pause", "suspend", "store outage", "ZooKeeper outage"))
            shape.coordinators, shape.leader_fails = 3, 0.15
            shape.faults, shape.zookeeper_unknown = 4, 0.1
        case "doubt":
            # Members that do not know whether they are members.
            shape.kinds = frozenset(("exclude", "suspend", "pause", "pause in the middle"))
            shape.faults, shape.writes, shape.readers, shape.reads = 5, 30, 2, 20
            shape.viewservers, shape.seconds, shape.epoch_ms, shape.ddl = rng.choice((2, 3)), 5, 100, 0
            shape.store_late, shape.lost, shape.server_sleeps = 0.0, 0.0, 0.06
        case "late computation":
            # A server is left out while it lives, and goes on with what others have committed and collected since.
            shape.kinds = frozenset(("hang",))
            shape.viewservers, shape.faults, shape.writes, shape.seconds = 3, 2, 90, 3
            shape.retention_ms, shape.pins, shape.epoch_ms, shape.ddl = 300, 0.0, 200, 0
            shape.store_late = shape.store_unreadable = shape.leader_fails = 0.0
            shape.clocks_are_off, shape.plan_rows, shape.plan_memory = False, 200_000, 256 << 20
        case "slow network":
            # Much of what arrives belongs to an attempt that is over.
            shape.kinds = frozenset(("crash", "crash in the middle", "expire", "visit", "scale down"))
            shape.repeated, shape.slow, shape.lost, shape.delay = 0.4, 0.2, 0.0, 2 * MS
            shape.faults, shape.writes, shape.viewservers = 8, 30, rng.choice((2, 3, 4))
        case "left out":
            # Members that hang or wait for the store, are left out although they live, and come back under load. What
            # they read below is soon collected.
            shape.kinds = frozenset(("hang", "evict", "isolate", "store outage", "pause"))
            shape.hangs, shape.loads_wait, shape.quiet_ms = 0.04, rng.choice((0.0, 0.1)), 600
            shape.shun_ms, shape.forgets = rng.choice((500, 5_000)), 0.7
            shape.faults, shape.writes, shape.viewservers, shape.seconds = 4, 30, rng.choice((2, 3)), 5
            shape.retention_ms, shape.epoch_ms, shape.pins, shape.store_late, shape.deletes = 300, 100, 0.0, 0.0, 0.4
        case "failing views":
            # Statements and leaders that come and go while views fail; servers that spill.
            shape.ddl, shape.coordinators, shape.leader_fails = max(2, shape.ddl), 3, rng.choice((0.0, 0.06))
            shape.writes, shape.subscribers = 30, 1
        case "repairs":
            # Rows that are damaged and repaired while members come and go, and the same rows change.
            shape.kinds = frozenset(
                ("crash", "crash in the middle", "expire", "visit", "scale up", "scale down", "evict")
            )
            shape.faults, shape.forgets, shape.subscribers = rng.choice((1, 3, 5)), rng.choice((0.1, 0.3)), 0
            shape.writes, shape.seconds, shape.ddl, shape.pins = rng.choice((30, 60)), 5, rng.choice((0, 0, 1)), 0.0
            shape.retention_ms, shape.store_late = rng.choice((300, 2_000)), 0.0
        case "versions":
            # Members of other versions come and go.
            shape.kinds = frozenset(("other engine", "other ring", "other protocol", "upgrade", "visit"))
            shape.faults, shape.viewservers, shape.store_late = 5, rng.choice((1, 2, 3)), 0.0
            shape.release = rng.choice((0, 1, 1))
