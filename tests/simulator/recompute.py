"""What all state and all views should be at an epoch, made anew from DELTA by a shard of the engine that has all
buckets and has never seen anything else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from belvedere.backend.memory import MemoryStore
from belvedere.cluster.catalog import catalogs
from belvedere.cluster.roles.work import encode_keys
from belvedere.engine.operators.pre_aggregation import PreAggregationOperator
from belvedere.engine.shard import Shard, TableWrite
from belvedere.protocol.ring import BUCKETS


@dataclass
class _Delta:
    """DELTA as it was at an epoch, but for some rows; nothing else is there."""

    memory: MemoryStore
    epoch: int
    instead: Mapping[str, Mapping[bytes, bytes | None]] = field(default_factory=dict)

    def load(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        return pa.nulls(len(ids), pa.binary())

    def scan(
        self, table: str, first: int, stop: int, below: int, only: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        if not table.startswith("delta "):
            return
        others = self.instead.get(table, {})
        for ids, values in self.memory.scan(table, first, stop, self.epoch + 1, only):
            found = [others.get(id.tobytes(), value) for id, value in zip(ids, values.to_pylist(), strict=True)]
            there = [at for at, value in enumerate(found) if value is not None]
            yield ids[there], pa.array([found[at] for at in there], pa.binary())


def aggregated(document: bytes) -> list[str]:
    """State tables of groups that only aggregates read. (A join finds at once that rows are missing that go: its view
    is set aside then, like any view that cannot be computed.)"""
    shard = Shard(_Delta(MemoryStore(), 0))
    shard.configure(catalogs.compile(document).shard)
    return [
        name
        for name, groups in shard._groups.items()
        if all(isinstance(facet, PreAggregationOperator) for facet in groups.facets.values())
    ]


def recompute(
    memory: MemoryStore, document: bytes, epoch: int, instead: Mapping[str, Mapping[bytes, bytes | None]]
) -> list[TableWrite]:
    """`instead`: rows of DELTA that are not what they should be."""
    shard = Shard(_Delta(memory, epoch, instead), encode_keys=encode_keys)
    catalog = catalogs.compile(document).shard
    shard.configure(catalog)
    shard.own(np.zeros(BUCKETS, np.uint16), 0)
    shard.begin(epoch, {group.number: (0, BUCKETS) for group in catalog.view_groups})
    for stage in range(shard.stages):
        shard.run(stage)
    return [write for write in shard.finish() if not write.table.startswith("delta ")]
