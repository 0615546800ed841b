"""The simulated network: what `Transport` promises, and no more.

Messages of one member to another arrive in order and at least once; between two pairs nothing is promised. A loss is
a delay (the sender tries again, and what stands behind waits), a lost answer is a repeat that comes later, behind
messages that overtook it. A partition holds everything up. What a member that crashed had not yet sent is gone; what
is for a member that is gone is dropped.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from belvedere.protocol.messages import Message
from belvedere.protocol.ring import MemberId
from tests.simulator.scheduler import MS, Scheduler
from tests.simulator.trace import Trace

Deliver = Callable[[MemberId, Message, bytes | None], None]


@dataclass
class Weather:
    """How bad the network is. Probabilities are per message."""

    delay: int = 500
    """Mean, microseconds."""
    lost: float = 0.0
    retry: int = 40 * MS
    repeated: float = 0.0
    slow: float = 0.0
    """Share of messages that take twenty times as long."""


@dataclass
class _Pair:
    queue: deque[tuple[int, Message, bytes | None]] = field(default_factory=deque)
    last: int = 0
    pumping: bool = False


class Network:
    def __init__(self, scheduler: Scheduler, rng: random.Random, weather: Weather, trace: Trace | None = None) -> None:
        self.weather = weather
        self._effects = (trace or Trace()).effects
        self._scheduler = scheduler
        self._random = rng
        self._receivers: dict[MemberId, Deliver] = {}
        self._pairs: dict[tuple[MemberId, MemberId], _Pair] = {}
        self._cut: dict[MemberId, int] = {}
        self._cut_pairs: dict[tuple[MemberId, MemberId], int] = {}

    # --- members

    def listen(self, member: MemberId, deliver: Deliver) -> None:
        self._receivers[member] = deliver

    def crash(self, member: MemberId) -> None:
        """The member is gone, and with it a random part of what it had not got rid of yet."""
        self._receivers.pop(member, None)
        for (sender, _), pair in self._pairs.items():
            if sender == member and pair.queue:
                kept = self._random.randint(0, len(pair.queue))
                while len(pair.queue) > kept:
                    pair.queue.pop()
                    self._effects["message dropped by a crash"] += 1

    def forget(self, sender: MemberId, receiver: MemberId) -> None:
        pair = self._pairs.get((sender, receiver))
        if pair is not None:
            pair.queue.clear()

    def send(self, sender: MemberId, receiver: MemberId, message: Message, payload: bytes | None = None) -> None:
        pair = self._pairs.get((sender, receiver))
        if pair is None:
            pair = self._pairs[sender, receiver] = _Pair()
        pair.last = max(pair.last + 1, self._scheduler.now + self._delay())
        pair.queue.append((pair.last, message, payload))
        if not pair.pumping:
            pair.pumping = True
            self._scheduler.at(pair.last, lambda: self._pump(sender, receiver, pair))

    def backlog(self) -> int:
        return sum(len(pair.queue) for pair in self._pairs.values())

    # --- faults

    def isolate(self, member: MemberId, until: int) -> None:
        """Nobody hears the member and it hears nobody until then."""
        self._cut[member] = max(until, self._cut.get(member, 0))

    def part(self, one: MemberId, other: MemberId, until: int) -> None:
        """Nothing comes from one to the other until then."""
        self._cut_pairs[one, other] = max(until, self._cut_pairs.get((one, other), 0))

    def heal(self) -> None:
        self._cut.clear()
        self._cut_pairs.clear()

    # --- how a message travels

    def delay(self) -> int:
        """Of something that is no message: a request that is answered on its own."""
        return self._delay()

    def _delay(self) -> int:
        draw, weather = self._random.random, self.weather
        delay = int(weather.delay * (0.2 + 1.6 * draw()))
        if weather.slow and draw() < weather.slow:
            delay *= 20
        if weather.lost and draw() < weather.lost:
            delay += int(weather.retry * (0.5 + draw()))
            self._effects["message lost and sent again"] += 1
        return delay

    def blocked_until(self, sender: MemberId, receiver: MemberId) -> int:
        if not self._cut and not self._cut_pairs:
            return 0
        cut = self._cut.get
        return max(cut(sender, 0), cut(receiver, 0), self._cut_pairs.get((sender, receiver), 0))

    def _pump(self, sender: MemberId, receiver: MemberId, pair: _Pair) -> None:
        if not pair.queue:
            pair.pumping = False
            return
        blocked = self.blocked_until(sender, receiver)
        if blocked > self._scheduler.now:
            self._effects["message held up by a partition"] += 1
            # Healing may come earlier than that: look again now and then.
            again = min(blocked, self._scheduler.now + 100 * MS)
            self._scheduler.at(again, lambda: self._pump(sender, receiver, pair))
            return
        arrival, message, payload = pair.queue[0]
        if arrival <= self._scheduler.now:
            pair.queue.popleft()
            self._arrive(sender, receiver, message, payload)
            if self.weather.repeated and self._random.random() < self.weather.repeated:
                later = self._delay() * self._random.choice((1, 5, 50, 500))
                self._effects["message repeated"] += 1
                self._scheduler.after(later, lambda: self._arrive(sender, receiver, message, payload))
        if pair.queue:
            self._scheduler.at(pair.queue[0][0], lambda: self._pump(sender, receiver, pair))
        else:
            pair.pumping = False

    def _arrive(self, sender: MemberId, receiver: MemberId, message: Message, payload: bytes | None) -> None:
        deliver = self._receivers.get(receiver)
        if deliver is not None:
            deliver(sender, message, payload)
