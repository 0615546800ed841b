"""What a task of Spark gets to read; it is sent by pickle, so it holds names and numbers and nothing that is open."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from belvedere.model.ranges import KeyRange


@dataclass
class CopiedPart(InputPartition):
    """Batches of a file (`copies.py`)."""

    path: str
    first: int
    stop: int


@dataclass
class BucketPart(InputPartition):
    """Hash buckets of a table of a pool's store, at an epoch."""

    epoch: int
    first: int
    stop: int


@dataclass
class RangePart(InputPartition):
    """Ranges of keys, at an epoch."""

    epoch: int
    ranges: tuple[KeyRange, ...]


def slices(first: int, stop: int, count: int) -> list[tuple[int, int]]:
    """At most so many neighbouring parts of a range, of nearly one size."""
    count = max(1, min(count, stop - first))
    bounds = [first + (stop - first) * i // count for i in range(count + 1)]
    return list(pairwise(bounds))
