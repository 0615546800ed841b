"""Tokens of the embedded database: proof of a write."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True, slots=True)
class Token:
    """Proof of a write: reads `after` it include it. As text: `str(token)`; back: `Token.parse`."""

    epoch: int

    def __str__(self) -> str:
        return f"e{self.epoch}"

    @staticmethod
    def parse(value: Token | int | str) -> Token:
        """From a token, its text or an epoch."""
        if isinstance(value, Token):
            return value
        text = str(value).removeprefix("e")
        if isinstance(value, bool) or not text.isdecimal():
            raise ValueError(f"{value!r} is no token: give what put, delete or write returned, or an epoch number")
        return Token(int(text))

    def settled(self, epoch: int) -> Token:
        """A token that is as good once this epoch is known to include it, and no longer than need be."""
        return self

    def joined_with(self, other: Token) -> Token:
        """One token that includes both: epochs of one history, so the later one."""
        return max(self, other)
