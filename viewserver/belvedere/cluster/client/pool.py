"""The members of a pool as a client finds them: seeds, then the topology, then whoever is asked.

Any coordinator tells who is there and who leads. What does not answer is asked again, the topology first, until the
call's time is up: then the last reason is what the caller gets. So a change of leader shows as latency only.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from belvedere import errors
from belvedere.cluster.transport import calls
from belvedere.protocol.messages import Generation, Role
from belvedere.protocol.ring import MemberId, Ring, RingVersion
from belvedere.retry import Backoff, Deadline, Retry

T = TypeVar("T")

CALL_SECONDS = 5.0
"""How long one try of a call may take."""
LOOK_SECONDS = 1.0
"""How long it may take to look whether somebody else is there after a call failed."""


class PoolCaller(Protocol):
    """What a client needs of a transport."""

    def call(self, address: str, name: str, request: bytes, timeout: float) -> bytes: ...


def pauses() -> Backoff:
    """Between the tries of a client's call."""
    return Backoff(0.02, 0.5)


def repeat(what: str, deadline: Deadline, attempt: Callable[[float], T]) -> T:
    """Do it until it does not raise `Unavailable` (`attempt` gets the seconds that one try may take), with pauses."""
    retry = Retry(what, deadline=deadline, backoff=pauses())
    return retry.run(lambda: attempt(max(deadline.left(CALL_SECONDS), 0.001)))


class Pool:
    """Who is there. Thread-safe."""

    def __init__(self, seeds: Sequence[str], caller: PoolCaller) -> None:
        self._seeds, self._caller = tuple(seeds), caller
        self._lock = threading.Lock()
        self._topology: calls.Topology | None = None

    # ------------------------------------------------------------------ who is there

    def topology(self, deadline: Deadline) -> calls.Topology:
        """As last heard; asks if nothing was heard yet."""
        known = self._topology
        return known if known is not None else repeat("looking for the pool", deadline, self.refresh)

    def refresh(self, timeout: float) -> calls.Topology:
        """Ask the coordinators that are known, one after the other, until one of them says that it leads itself: what
        others know of a leader may be old."""
        asked = self._coordinators()
        reasons = []
        best: calls.Topology | None = None
        for address in asked:
            try:
                data = self._caller.call(address, calls.TOPOLOGY, b"", max(timeout / len(asked), 0.001))
            except errors.Unavailable as error:
                reasons.append(str(error))
                continue
            found = calls.decode(data, calls.Topology)
            self._check(found)
            if best is None or not _address(best, best.leader):
                best = found
            if _address(found, found.leader) == address:
                best = found
                break
        if best is None:
            raise errors.PeerUnavailable(f"no coordinator answers: {'; '.join(reasons)}")
        with self._lock:
            self._topology = best
        return best

    def _coordinators(self) -> list[str]:
        known = self._topology
        listed = [] if known is None else _addresses(known, Role.COORDINATOR)
        return list(dict.fromkeys([*listed, *self._seeds]))

    def _check(self, found: calls.Topology) -> None:
        known = self._topology
        if known is not None and known.cluster and found.cluster and known.cluster != found.cluster:
            raise errors.Incompatible(
                f"the pool at {', '.join(self._seeds)} is another one than before: cluster {found.cluster}, "
                f"not {known.cluster}; connect again"
            )

    def outdated(self, generation: int) -> bool:
        """Whether members are of another generation than the topology tells."""
        known = self._topology
        return known is None or known.generation is None or known.generation.number < generation

    def store_url(self, deadline: Deadline) -> str:
        """Of the backend, if the pool was given one."""
        return self.topology(deadline).store

    def store_address(self, deadline: Deadline) -> str:
        def find(timeout: float) -> str:
            found = _addresses(self._topology or self.refresh(timeout), Role.STORE)
            if not found:
                found = _addresses(self.refresh(timeout), Role.STORE)
            if not found:
                raise errors.StoreUnavailable("no member with the role store is there")
            return found[0]

        return repeat("looking for the store", deadline, find)

    def owner(self, bucket: int) -> tuple[str, Generation] | None:
        """The address of the view server that owns the bucket, as far as known, and the generation in which it does."""
        known = self._topology
        if known is None or known.generation is None or not known.generation.servers:
            return None
        ring = _ring(known.generation.ring, known.generation.servers)
        address = _address(known, ring.owner(bucket))
        return (address, known.generation) if address else None

    # ------------------------------------------------------------------ calls

    def call(self, address: str, name: str, request: bytes, timeout: float) -> bytes:
        """One try at one member."""
        return self._caller.call(address, name, request, timeout)

    def ask_leader(self, name: str, request: bytes, timeout: float) -> bytes:
        """One try at the leader. If it fails, the next one begins with another look at the topology."""
        known = self._topology or self.refresh(timeout)
        address = _address(known, known.leader)
        if not address:
            known = self.refresh(timeout)
            address = _address(known, known.leader)
        if not address:
            raise errors.PeerUnavailable("no coordinator leads at the moment")
        try:
            return self._caller.call(address, name, request, timeout)
        except errors.Unavailable:
            self.refresh(min(timeout, LOOK_SECONDS))
            raise


def _address(topology: calls.Topology, member: MemberId) -> str:
    return next((m.address for m in topology.members if m.id == member), "")


def _addresses(topology: calls.Topology, role: Role) -> list[str]:
    """Of this cluster: members of another one may have come to a pool of the same name."""
    return [m.address for m in topology.members if m.role is role and m.cluster == topology.cluster]


@functools.lru_cache(maxsize=16)
def _ring(version: int, servers: tuple[MemberId, ...]) -> Ring:
    return Ring.of(RingVersion(version), servers)
