"""Sums and averages of doubles that are exact, whatever the order of the values, as functions of Spark SQL."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import DoubleType

from belvedere.model.recompute import exact_mean, exact_sum
from belvedere.sql.spark import EXACT_MEAN, EXACT_SUM


def register_exact(spark: SparkSession) -> None:
    """`EXACT_SUM` and `EXACT_MEAN`. What kind of function each is, Spark reads from its annotations."""
    spark.udf.register(EXACT_SUM, arrow_udf(_sums, DoubleType()))  # type: ignore[call-overload]
    spark.udf.register(EXACT_MEAN, arrow_udf(_means, DoubleType()))  # type: ignore[call-overload]


def _sums(lists: pa.Array) -> pa.Array:
    return pa.array([exact_sum(values) for values in _values(lists)], pa.float64())


def _means(lists: pa.Array) -> pa.Array:
    return pa.array([exact_mean(values) for values in _values(lists)], pa.float64())


def _values(lists: pa.Array) -> list[np.ndarray]:
    offsets, values = lists.offsets.to_numpy(), lists.values.to_numpy(zero_copy_only=False)
    return [values[a:b] for a, b in pairwise(offsets)]
