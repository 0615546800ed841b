"""A candidacy: an ephemeral, sequential node; the lowest is elected. Each candidate watches its predecessor only.

The node is found by the guid that begins its name, so a creation whose answer was lost is neither repeated nor
forgotten. `bring_up_to_date` looks what is there and does what is missing; it runs again after every failure and every
event.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from belvedere.cluster.coordination.nodes import PoolNodes
from belvedere.cluster.coordination.requests import Children, DeleteNode, Exists, NoNode, Sync, ZooKeeperLink

Tell = Callable[[Callable[[bool], None], bool], None]


@dataclass
class _Candidacy:
    candidate: str
    listener: Callable[[bool], None]
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Begins the name of its node, so that it is found again when the answer to its creation was lost."""
    elected: bool = False


class Election:
    """`lock` and `wake` are the coordination's: waking it leads to `bring_up_to_date`."""

    def __init__(self, nodes: PoolNodes, lock: threading.RLock, wake: threading.Event, tell: Tell) -> None:
        self._nodes = nodes
        self._lock = lock
        self._wake = wake
        self._tell = tell
        self._candidacy: _Candidacy | None = None
        self._given_up: list[str] = []
        """Keys of candidacies whose nodes are still to be removed."""
        self._is_stale = False

    def campaign(self, candidate: str, elected: Callable[[bool], None]) -> None:
        with self._lock:
            if self._candidacy is not None:
                raise ValueError(f"{candidate!r} cannot campaign: this connection takes part in the election already")
            self._candidacy = _Candidacy(candidate, elected)
            self.look_again()

    def resign(self) -> None:
        with self._lock:
            if self._candidacy is not None:
                self._given_up.append(self._candidacy.key)
                self._end_candidacy()
                self.look_again()

    def session_ended(self) -> None:
        """The nodes are gone with it."""
        with self._lock:
            self._end_candidacy()
            self._given_up.clear()

    def look_again(self) -> None:
        with self._lock:
            self._is_stale = True
            self._wake.set()

    def _end_candidacy(self) -> None:
        ended, self._candidacy = self._candidacy, None
        if ended is not None and ended.elected:
            self._tell(ended.listener, False)

    def bring_up_to_date(self, link: ZooKeeperLink) -> None:
        with self._lock:
            if not self._is_stale:
                return
            self._is_stale = False
            candidacy, given_up = self._candidacy, tuple(self._given_up)
        try:
            self._clear_away(link, given_up)
            if candidacy is not None:
                self._hold_election(link, candidacy)
        except BaseException:
            with self._lock:
                self._is_stale = True
            raise

    def _candidates(self, link: ZooKeeperLink) -> list[str]:
        """The names of the nodes, in order. After a reconnection the server may not know yet what was made before."""
        link.ask(Sync(self._nodes.election))
        return sorted(link.ask(Children(self._nodes.election)), key=_sequence)

    def _clear_away(self, link: ZooKeeperLink, keys: tuple[str, ...]) -> None:
        if not keys:
            return
        for name in self._candidates(link):
            if name.startswith(keys):
                self._delete_candidate(link, name)
        with self._lock:
            self._given_up = [key for key in self._given_up if key not in keys]

    def _delete_candidate(self, link: ZooKeeperLink, name: str) -> None:
        with contextlib.suppress(NoNode):
            link.ask(DeleteNode(f"{self._nodes.election}/{name}"))

    def _hold_election(self, link: ZooKeeperLink, candidacy: _Candidacy) -> None:
        """Watches one node only: the predecessor, or, when elected, the own one (an administrator may remove it)."""
        while True:
            names = self._candidates(link)
            own = [name for name in names if name.startswith(candidacy.key)]
            if not own:
                self._tell_elected(candidacy, False)
                path = f"{self._nodes.election}/{candidacy.key}-"
                self._nodes.create_ephemeral(link, path, candidacy.candidate.encode(), sequence=True)
                continue
            for duplicate in own[1:]:
                self._delete_candidate(link, duplicate)
            place = names.index(own[0])
            watched = f"{self._nodes.election}/{names[max(place - 1, 0)]}"
            if link.ask(Exists(watched, self._election_changed)) is not None:
                self._tell_elected(candidacy, place == 0)
                return

    def _tell_elected(self, candidacy: _Candidacy, elected: bool) -> None:
        with self._lock:
            if candidacy is self._candidacy and candidacy.elected != elected:
                candidacy.elected = elected
                self._tell(candidacy.listener, elected)

    def _election_changed(self, _: str) -> None:
        self.look_again()


def _sequence(name: str) -> int:
    """What ZooKeeper appended; nodes that others put there come last."""
    digits = name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 1 << 62
