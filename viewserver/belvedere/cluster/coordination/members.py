"""The members of a pool as the watches tell them: what was read before is kept, what a watch names is read again.

One watch on the list and one on each entry. Watches are forgotten when a connection breaks; then all is read
again (`forget`). A watch is armed anew by the read that follows it, so a change between the two is in what is read. An
update that fails forgets everything and is tried again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from belvedere.cluster.coordination.nodes import PoolNodes
from belvedere.cluster.coordination.requests import Children, Get, Sync, Watch, ZooKeeperLink, ZooKeeperRefusal
from belvedere.cluster.coordination.seam import decode_member
from belvedere.protocol.messages import Member

Tell = Callable[[Callable[[list[Member]], None], list[Member]], None]


class MembersView:
    """`lock` and `wake` are the coordination's: waking it leads to `bring_up_to_date`."""

    def __init__(self, nodes: PoolNodes, lock: threading.RLock, wake: threading.Event, tell: Tell) -> None:
        self._nodes = nodes
        self._lock = lock
        self._wake = wake
        self._tell = tell
        self._listeners: list[Callable[[list[Member]], None]] = []
        self._told: list[Member] | None = None
        self._entries: dict[str, bytes] = {}
        self._list_is_stale = True
        self._stale_entries: set[str] = set()

    def listen(self, listener: Callable[[list[Member]], None]) -> None:
        with self._lock:
            self._listeners.append(listener)
            if self._told is not None:
                self._tell(listener, list(self._told))
            self._wake.set()

    def read(self, link: ZooKeeperLink) -> list[Member]:
        """From ZooKeeper, without a watch."""
        link.ask(Sync(self._nodes.members))
        names = link.ask(Children(self._nodes.members))
        return _decode_all(self._read_entries(link, names, watch=None))

    def forget(self) -> None:
        with self._lock:
            self._entries = {}
            self._stale_entries = set()
            self._list_is_stale = True

    def bring_up_to_date(self, link: ZooKeeperLink) -> None:
        with self._lock:
            if not self._listeners or not (self._list_is_stale or self._stale_entries):
                return
            list_again, self._list_is_stale = self._list_is_stale, False
            stale, self._stale_entries = self._stale_entries, set()
            known = self._entries
        try:
            names = list(known)
            if list_again:
                names = link.ask(Children(self._nodes.members, self._list_changed))
            unknown = [name for name in names if name in stale or name not in known]
            found = self._read_entries(link, unknown, watch=self._entry_changed)
        except BaseException:
            with self._lock:
                self.forget()
            raise
        with self._lock:
            if known is not self._entries:  # disconnected meanwhile: once more, from scratch
                return
            kept = {name: known[name] for name in names if name in known and name not in unknown}
            self._entries = kept | found
            listing = _decode_all(self._entries)
            if listing != self._told:
                self._told = listing
                for listener in self._listeners:
                    self._tell(listener, list(listing))

    def _read_entries(self, link: ZooKeeperLink, names: list[str], watch: Watch | None) -> dict[str, bytes]:
        """Without those that went away meanwhile (of which a watch on their parent tells)."""
        answers = link.ask_all(Get(f"{self._nodes.members}/{name}", watch) for name in names)
        return {
            name: answer[0]
            for name, answer in zip(names, answers, strict=True)
            if not isinstance(answer, ZooKeeperRefusal)
        }

    def _list_changed(self, _: str) -> None:
        with self._lock:
            self._list_is_stale = True
            self._wake.set()

    def _entry_changed(self, path: str) -> None:
        with self._lock:
            self._stale_entries.add(path.rpartition("/")[2])
            self._wake.set()


def _decode_all(entries: dict[str, bytes]) -> list[Member]:
    found = [decode_member(data) for data in entries.values()]
    return sorted((member for member in found if member is not None), key=lambda member: member.id)
