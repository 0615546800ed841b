"""A part of a table or view by its keys: from one key to another, or all that begin with a prefix."""

from __future__ import annotations

from dataclasses import dataclass, replace

from belvedere.model.keys import after_prefix


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Encoded keys from `low` up to `high`, which is not included (None: to the end); at most `limit` rows, ascending,
    or from the upper end if `reverse`."""

    low: bytes = b""
    high: bytes | None = None
    limit: int | None = None
    reverse: bool = False

    def beyond(self, key: bytes) -> KeyRange:
        """What is left of it when all rows up to this key, in its direction, were read."""
        if self.reverse:
            return replace(self, high=key if self.high is None else min(key, self.high))
        return replace(self, low=max(key + b"\0", self.low))

    def __contains__(self, key: bytes) -> bool:
        return self.low <= key and (self.high is None or key < self.high)


def beginning_with(prefix: bytes, limit: int | None = None, reverse: bool = False) -> KeyRange:
    """All keys that begin so."""
    return KeyRange(prefix, after_prefix(prefix), limit, reverse)
