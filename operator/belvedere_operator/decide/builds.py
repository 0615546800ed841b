"""Who builds a view from the rows that are there: the pool itself through epochs, or Spark in a Job.

A pool computes nothing of a view that is to be built by Spark: it waits until somebody has. So a view is described so
only where there is an image of Spark, and by whom it is built is decided when its text goes to the pool, not again when
its tables have grown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from belvedere_operator.api.materialized_view import AUTO, SPARK, MaterializedViewSpec
from belvedere_operator.api.quantities import bytes_of
from belvedere_operator.decide.engines import AUTO_ABOVE, NO_SPARK
from belvedere_operator.decide.items import Item
from belvedere_operator.decide.ordering import mentioned
from belvedere_operator.gateway import PoolFigures, SparkBuild


def lacks_spark(item: Item, has_spark: bool) -> str:
    """Why a view cannot be built as it asks for; empty: it can."""
    spec = item.spec
    return NO_SPARK if isinstance(spec, MaterializedViewSpec) and spec.build == SPARK and not has_spark else ""


def built_by(item: Item, figures: PoolFigures | None, has_spark: bool, auto_above: str | None) -> Item:
    """The item as the pool is told of it: where it leaves the choice, Spark builds over tables with many bytes."""
    spec = item.spec
    if not isinstance(spec, MaterializedViewSpec) or spec.build != AUTO or not has_spark or figures is None:
        return item
    words = mentioned(spec.query)
    sizes = [told.bytes or 0 for name, told in figures.tables.items() if name.lower() in words]
    return replace(item, build=SPARK) if sum(sizes) > bytes_of(auto_above or AUTO_ABOVE) else item


def due(builds: Iterable[SparkBuild]) -> list[SparkBuild]:
    """Those that can be computed: what they read is complete at an epoch that the pool keeps for them."""
    return [one for one in builds if one.since]
