"""What the leader tells people and clients about its pool: who is there, how far it is, what holds it up."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from belvedere import errors
from belvedere.backend.seam import KeptLog, LoadProgress
from belvedere.cluster.catalog import aside
from belvedere.cluster.roles.work import ring_of
from belvedere.cluster.transport import calls
from belvedere.protocol import wire
from belvedere.protocol.driving import Note
from belvedere.protocol.messages import Epoch, EpochPlan, Generation, Member, PoolState, Role
from belvedere.protocol.ring import BUCKETS, MemberId

if TYPE_CHECKING:
    from belvedere.cluster.roles.coordinator import CoordinatorMember

T = TypeVar("T")

MEMBER = "member"
"""The call by which a member tells about itself."""
MEMBER_SECONDS = 1.0
UNUSUAL_MS = 1000
MOST_SHOWN = 20


class LastTold(Generic[T]):
    """What another system said last. It is asked in a thread, and waited for as long as for a member: one that is away
    for an hour must not take the status with it, which says so."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._asked: Future[T] | None = None
        self._told: T | None = None

    def __call__(self, ask: Callable[[], T]) -> T | None:
        with self._lock:
            if self._asked is None:
                self._asked = self._pool.submit(ask)
            asked = self._asked
        wait([asked], MEMBER_SECONDS)
        with self._lock:
            if asked.done() and self._asked is asked:
                self._asked = None
                with contextlib.suppress(errors.Unavailable):
                    self._told = asked.result()
            return self._told


class Overview:
    def __init__(self, member: CoordinatorMember) -> None:
        self._member = member
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(8, f"{member.me} status")
        self._kept_log: LastTold[KeptLog | None] = LastTold(self._pool)
        self._loads: LastTold[Mapping[str, LoadProgress]] = LastTold(self._pool)
        self._last: EpochPlan | None = None
        self._committed_at = 0.0
        self._refused: dict[str, str] = {}
        self._reason = "members changed"
        """Why the next generation does epochs again, if nothing else is said until then."""

    # ------------------------------------------------------------------ the loop

    def noted(self, note: Note) -> None:
        fields, metrics = note.fields, self._member.metrics
        match note.event:
            case "member refused":
                self._refused[str(fields["member"])] = str(fields["reason"])
            case "committed":
                metrics.epoch_step("total", fields["took_ms"] / 1000)
                metrics.committed(fields["epoch"])
            case "leading":
                self._reason = "leader changed"
            case "attempt failed":
                self._reason = "failed"
            case "generation":
                for _ in self._member.machine.epochs.open:
                    metrics.attempt_repeated(self._reason)
                self._reason = "members changed"

    def committed(self, plan: EpochPlan) -> None:
        self._last, self._committed_at = plan, time.time()

    def generation_and_trouble(self) -> tuple[int, str]:
        state = self._member.machine.leadership.state
        if state is None:
            return 0, ""
        return int(state.generation), state.stalled or self._member.around.trouble.reason

    # ------------------------------------------------------------------ threads of the transport

    def topology(self) -> calls.Topology:
        """Any coordinator knows who is there; who leads is in the record."""
        member = self._member
        leads, generation = member.in_loop(self._lead)
        leader = member.me if leads else self._recorded_leader()
        retention = int(member.options.retention * 1000)
        present, store = tuple(member.peers.members()), member.options.store
        return calls.Topology(member.around.cluster, leader, present, generation, retention, store)

    def _lead(self) -> tuple[bool, Generation | None]:
        machine = self._member.machine
        return machine.leadership.leading, machine.epochs.generation

    def _recorded_leader(self) -> MemberId:
        try:
            found = self._member.around.coordination.read()
        except errors.Unavailable:
            return MemberId("")
        state = None if found is None else wire.decode(found.data)
        return state.leader if isinstance(state, PoolState) else MemberId("")

    def status(self) -> dict[str, Any]:
        member = self._member
        found: dict[str, Any] = member.in_loop(self._status)
        told = list(self._pool.map(self._ask, found.pop("present")))
        shares = found.pop("shares")
        for one in told:
            one["share"] = shares.get(one["id"])
            one["refused"] = self._refused.get(one["id"], "")
        found["loading"] = self._loading()
        found["aside"] = self._aside(found["aside"])
        found["followed"] = self.followed()
        found["members"] = sorted(told, key=lambda one: (one["role"], one["id"]))
        return found

    def _status(self) -> dict[str, Any]:
        member, machine = self._member, self._member.machine
        member.require_lead()  # in the loop: whoever has just lost the lead has forgotten all of it
        state, generation = machine.leadership.state, machine.epochs.generation
        shares: dict[str, float] = {}
        if generation is not None and generation.servers:
            loads = ring_of(generation).loads()
            shares = {name: float(load) / BUCKETS for name, load in zip(generation.servers, loads, strict=True)}
        now = member.clock.now()
        open_plans = [epoch.plan for epoch in machine.epochs.open]
        waiting = member.waiting()
        return {
            "pool": member.options.pool,
            "cluster": member.around.cluster,
            "leader": member.me,
            "term": 0 if state is None else state.term,
            "generation": 0 if generation is None else generation.number,
            "protocol": 0 if generation is None else generation.protocol,
            "engine": 0 if generation is None else generation.engine,
            "oldest_state": machine.membership.oldest_state,
            "epoch": machine.epochs.committed,
            "open_epochs": [plan.epoch for plan in open_plans],
            "age_ms": max(0, now - machine.epochs.committed) if machine.epochs.committed else None,
            "lag_ms": max(0, now - waiting.oldest) if waiting.oldest else 0,
            "backlog_rows": waiting.rows,
            "catalog": machine.catalog[0],
            "building": list(machine.catalog[2]),
            "built": {str(number): buckets for number, buckets in machine.built.items()},
            "repairs": member.repairs.status(),
            "aside": dict(machine.awaited),
            "waiting_for": self._waiting_for(),
            "held_up": self._held_up(),
            "stalled": "" if state is None else state.stalled or member.around.trouble.reason,
            "store": member.around.store_address,
            "shares": shares,
            "present": member.peers.members(),
        }

    def followed(self) -> dict[str, int]:
        """What another system keeps of its log for this pool, as it was told last; nothing if there is none."""
        follower = self._member.around.follower
        kept = None if follower is None else self._kept_log(follower.kept_log)
        return {} if kept is None else {"log_files": kept.files, "lag_ms": kept.lag_ms}

    def _loading(self) -> dict[str, dict[str, float | None]]:
        """Tables of another system whose rows are being read, and how far that is."""
        follower = self._member.around.follower
        progress = None if follower is None else self._loads(follower.load_progress)
        return {
            table: {
                "ranges": at.ranges,
                "read": at.done,
                "rows": at.rows,
                "share": round(at.share, 3),
                "remaining_s": None if at.remaining_s is None else round(at.remaining_s, 1),
            }
            for table, at in (progress or {}).items()
        }

    def _aside(self, awaited: Mapping[int, Epoch]) -> dict[str, dict[str, Any]]:
        """View groups that somebody else computes, and how far that is."""
        store, found = self._member.around.store, {}
        for number, since in awaited.items():
            told: dict[str, Any] = {"since": since}
            if since:
                with contextlib.suppress(errors.Unavailable):
                    told |= aside.progress_of(store, aside.AsideBuild(number, since))
            found[str(number)] = told
        return found

    def _waiting_for(self) -> str:
        """Whom the oldest epoch waits for, if that takes longer than usual."""
        machine = self._member.machine
        waiting, silence = machine.epochs.waiting_for(), machine.failure_detector.silence(self._member.clock.now())
        return "" if waiting is None or silence < UNUSUAL_MS else f"{waiting}, for {silence / 1000:.1f} s"

    def _held_up(self) -> dict[str, str]:
        """Sources that have changes which cannot be planned yet, and why."""
        sources = self._member.machine.sources
        found: dict[str, str] = {}
        for source, parents in sorted(sources.held_up().items())[:MOST_SHOWN]:
            places = [f"{parent} (pushed by {sources.home(parent)[1] or 'nobody'})" for parent in sorted(parents)]
            found[source] = f"waits for {', '.join(places)}" if places else "is not listed yet"
        return found

    def _ask(self, member: Member) -> dict[str, Any]:
        """What a member says of itself; what is known anyway if it does not answer."""
        known: dict[str, Any] = {
            "id": member.id,
            "role": member.role.value,
            "address": member.address,
            "leaving": member.leaving,
        }
        if member.role is Role.STORE:
            return known
        try:
            answer = self._member.around.transport.call(member.address, MEMBER, b"", MEMBER_SECONDS)
        except errors.BelvedereError as error:
            return known | {"trouble": str(error)}
        told: dict[str, Any] = json.loads(answer)
        return told | known

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
