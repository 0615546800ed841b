"""Tokens of a cluster: a position of each source written to, or an epoch (DDL, changes of a view)."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from belvedere.model import token as embedded_token
from belvedere.protocol.exactly_once import Seq, SourceId
from belvedere.protocol.row_marks import RowMark

_HINT = "give what put, delete or write returned, or an epoch number"


@dataclass(frozen=True, slots=True)
class ClusterToken(embedded_token.Token):
    """Proof of a write: reads `after` it include it. As text: `str(token)`; back: `ClusterToken.parse`.

    An epoch includes it if it is not older than `epoch` and every source has reached its position."""

    epoch: int = 0
    positions: tuple[tuple[SourceId, Seq], ...] = ()

    @staticmethod
    def of(positions: Mapping[SourceId, Seq]) -> ClusterToken:
        return ClusterToken(0, tuple(sorted(positions.items())))

    def __str__(self) -> str:
        parts = [f"{urllib.parse.quote(source, safe='')}:{seq}" for source, seq in self.positions]
        return ",".join([f"e{self.epoch}", *parts])

    @staticmethod
    def parse(value: embedded_token.Token | int | str) -> ClusterToken:
        """From a token, its text or an epoch."""
        if isinstance(value, ClusterToken):
            return value
        if isinstance(value, embedded_token.Token):
            return ClusterToken(value.epoch)
        epoch, *parts = str(value).removeprefix("e").split(",")
        pairs = [part.rpartition(":") for part in parts]
        if isinstance(value, bool) or not epoch.isdecimal() or not all(s and q.isdecimal() for s, _, q in pairs):
            raise ValueError(f"{value!r} is no token: {_HINT}")
        return ClusterToken(
            int(epoch), tuple(sorted((SourceId(urllib.parse.unquote(s)), Seq(int(q))) for s, _, q in pairs))
        )

    @staticmethod
    def joined(tokens: Iterable[embedded_token.Token]) -> ClusterToken:
        """One token that includes all of them."""
        epoch, positions = 0, dict[SourceId, Seq]()
        for token in map(ClusterToken.parse, tokens):
            epoch = max(epoch, token.epoch)
            for source, seq in token.positions:
                positions[source] = max(seq, positions.get(source, seq))
        return ClusterToken(epoch, tuple(sorted(positions.items())))

    def settled(self, epoch: int) -> ClusterToken:
        """Without the rows that it names, of which there are more with each write."""
        logs = tuple(one for one in self.positions if RowMark.parse(one[0]) is None)
        return self if len(logs) == len(self.positions) else ClusterToken(max(self.epoch, epoch), logs)

    def joined_with(self, other: embedded_token.Token) -> ClusterToken:
        return ClusterToken.joined((self, other))
