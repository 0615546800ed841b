"""Who may answer a read: the server that owned the bucket in that epoch, and processed it.

    epochs:         … 10   11   12 │ 13   14 │ 15   16        a server notes each generation that it adopts, with the
    generation:        k           │   k+1   │   k+2          first epoch that is done in it; and of each epoch that
    ring:             [me owns b]  │ [x does]│ [me owns b]    it has processed it, in which generation

    may_answer(b, 11) YES     (b, 14) NOT_OWNER, ask x     (b, 16) NOT_PROCESSED     (b, 17) NOT_COMMITTED

Why it is safe:

1. Ownership is judged by the ring of the epoch that is read, not by today's: a former owner refuses what came after it
   lost the bucket, a new owner refuses what was before.
2. A generation that does epochs again takes them from the one before: what was processed in the old one from its
   first epoch on does not count any more.
3. Each generation answers only for epochs that were processed *in it*. A server that was left out of a generation
   does not know its epochs, and they are in none of its spans, whatever came later; and what it had processed, but did
   not know to be committed, may have been done again without it.
4. Only committed epochs are answered. A server that hears nothing any more hears of no commits either, and what it
   still answers was committed while it owned it; that never changes.
5. Memory is bounded: the oldest spans are forgotten, and the store is asked for what they would have answered.

A session never goes back: it reads at the newest epoch that it has seen, or a later one.
"""

from __future__ import annotations

import enum
from collections.abc import Container, Mapping
from dataclasses import dataclass

import numpy as np

from belvedere.protocol.exactly_once import START, Seq, SourceId
from belvedere.protocol.messages import NEVER, Attempt, Epoch
from belvedere.protocol.ring import Array, MemberId, Ring

SPANS = 16
"""Generations that a server remembers; a ring takes 32 KB."""


class Verdict(enum.IntEnum):
    YES = 0
    NOT_OWNER = 1
    NOT_PROCESSED = 2
    NOT_COMMITTED = 3


@dataclass(frozen=True)
class ReadAnswer:
    """`ask`: who owned the bucket, if this server knows; otherwise, and if that one is gone, the store knows."""

    verdict: Verdict
    ask: MemberId | None = None

    def __bool__(self) -> bool:
        return self.verdict is Verdict.YES


YES = ReadAnswer(Verdict.YES)


@dataclass(frozen=True, eq=False)
class Answers:
    """For many buckets of one epoch: verdicts (uint8[n]); whom to ask is `members[ask[i]]`, nobody where it is -1."""

    verdicts: Array
    ask: Array
    members: tuple[MemberId, ...]

    @property
    def all(self) -> bool:
        return not self.verdicts.any()


@dataclass
class _Span:
    """Epochs `first` to `through` were processed in this generation; what comes after is open or not planned yet."""

    attempt: Attempt
    first: Epoch
    ring: Ring
    mine: int
    """This server's position on the ring, -1 if it is not there."""
    through: Epoch


class Ownership:
    """One view server's memory of what it owned."""

    def __init__(self, me: MemberId) -> None:
        self.me = me
        self.committed = NEVER
        self._spans: list[_Span] = []

    def adopt(self, attempt: Attempt, ring: Ring, committed: Epoch) -> None:
        """A generation begins: epochs after `committed` are done in it, again if they had been done before."""
        if self._spans and attempt <= self._spans[-1].attempt:
            return
        first = Epoch(committed + 1)
        missed = bool(self._spans) and attempt > self._spans[-1].attempt + 1
        certain = self.committed if missed else committed  # what was open may have been done again without this server
        for span in self._spans:
            span.through = min(span.through, certain)
        self._spans = [span for span in self._spans if span.through >= span.first]
        mine = ring.members.index(self.me) if self.me in ring.members else -1
        self._spans.append(_Span(attempt, first, ring, mine, Epoch(first - 1)))
        del self._spans[:-SPANS]
        self.commit(committed)

    def process(self, epoch: Epoch, attempt: Attempt) -> None:
        """All of the epoch is done here, in this generation. Its epochs are processed in order, without gaps."""
        if self._spans and self._spans[-1].attempt == attempt:
            self._spans[-1].through = max(self._spans[-1].through, epoch)

    def commit(self, epoch: Epoch) -> None:
        self.committed = max(self.committed, epoch)

    def forget(self, horizon: Epoch) -> None:
        """Nobody reads below the horizon any more."""
        self._spans = [span for span in self._spans[:-1] if span.through >= horizon] + self._spans[-1:]

    def may_answer(self, bucket: int, epoch: Epoch) -> ReadAnswer:
        if epoch > self.committed:
            return ReadAnswer(Verdict.NOT_COMMITTED)
        span = self._span(epoch)
        if span is None:
            return ReadAnswer(Verdict.NOT_OWNER)
        if span.ring.table[bucket] != span.mine:
            return ReadAnswer(Verdict.NOT_OWNER, span.ring.owner(bucket))
        return YES if epoch <= span.through else ReadAnswer(Verdict.NOT_PROCESSED)

    def may_answer_all(self, buckets: Array, epoch: Epoch) -> Answers:
        nobody = np.full(len(buckets), -1, np.int32)
        if epoch > self.committed:
            return Answers(np.full(len(buckets), Verdict.NOT_COMMITTED, np.uint8), nobody, ())
        span = self._span(epoch)
        if span is None:
            return Answers(np.full(len(buckets), Verdict.NOT_OWNER, np.uint8), nobody, ())
        owners = span.ring.table[buckets].astype(np.int32)
        own = Verdict.YES if epoch <= span.through else Verdict.NOT_PROCESSED
        mine = owners == span.mine
        verdicts = np.where(mine, own, Verdict.NOT_OWNER).astype(np.uint8)
        return Answers(verdicts, np.where(mine, -1, owners).astype(np.int32), span.ring.members)

    def _span(self, epoch: Epoch) -> _Span | None:
        """The generation in which the epoch was done, as far as this server knows."""
        for i in range(len(self._spans) - 1, -1, -1):
            span = self._spans[i]
            if epoch >= span.first:
                return span if epoch <= span.through or i == len(self._spans) - 1 else None
        return None


# --- the client's side


def covers(token: Mapping[SourceId, Seq], positions: Mapping[SourceId, Seq], listed: Container[SourceId]) -> bool:
    """Whether an epoch with these positions includes the writes of the token.

    `listed`: the sources that the store lists, or anything that contains them, read *before* the positions. A source
    without a position is not planned yet if it is listed. If not, it ended, was committed to its end and forgotten."""
    return all(
        positions.get(source, START) >= seq or (source not in positions and source not in listed)
        for source, seq in token.items()
    )


@dataclass
class ReadSession:
    """One reader's, or that of a client for all who use it. `epoch`: the newest that it has read at."""

    epoch: Epoch = NEVER

    def at(self, committed: Epoch) -> Epoch:
        """The epoch to read at when this one is known to be committed: never below an earlier read."""
        self.epoch = max(self.epoch, committed)
        return self.epoch
