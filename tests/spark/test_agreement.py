"""Verification by Spark raises no false alarm: every story of views, rows that fail, and random healthy views."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

import belvedere
from belvedere.embedded.database import Database
from belvedere.spark.verify.verification import verify
from tests.oracle.clock import clock
from tests.properties.case import Drop, View, generate, write
from tests.properties.histories import Write
from tests.views.format import FILES, State, parse, steps
from tests.views.test_views import _do as carry_out

ALWAYS = {
    "agg_avg_decimal", "agg_sum_double_exact", "cast_from_strings", "cast_strings", "decimal_division", "join_full",
    "like", "not_in_subquery", "numeric_round", "string_functions", "timestamp_arithmetic", "view_over_bag",
    "quarantine_and_either_order", "quarantine_cast_overflow", "quarantine_group", "quarantine_group_filter",
    "quarantine_group_sum_overflow", "quarantine_short_circuit", "quarantine_view_over_view",
}  # fmt: skip
"""Stories in every run: what Spark, DuckDB and the engine could see differently. The others are in long ones."""
HEALTHY = 300
FEW = 6


def check(spark: SparkSession, db: Database, what: str) -> int:
    """How many views could be compared."""
    compared = 0
    for report in verify(spark, db):
        assert report.differences == 0, f"{what}: {report}"
        assert report.complete == (db.quarantine(report.view).num_rows + report.quarantined_below == 0)
        assert report.compared or not report.complete, f"{what}: {report}"
        assert report.ok == (report.complete and report.compared), f"{what}: {report}"
        compared += report.compared
    return compared


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, id=p.stem, marks=() if p.stem in ALWAYS else pytest.mark.long) for p in FILES],
)
def test_stories_of_views_end_without_an_alarm(spark: SparkSession, path: Path) -> None:
    state = State()
    with belvedere.open(clock=clock()) as db:
        for step, _ in steps(parse(path)):
            carry_out(db, step, state, path.name)
        if db.catalog.views:
            check(spark, db, path.name)


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed < FEW else pytest.mark.long) for seed in range(HEALTHY)]
)
def test_random_healthy_views_pass_at_random_epochs(spark: SparkSession, seed: int) -> None:
    """Under writes: the history goes on while Spark reads."""
    case, rng = generate(seed), Random(seed)
    with belvedere.open(clock=clock()) as db:
        for table in case.tables:
            db.execute(table.ddl())
        known, token = set[str](), None
        written = [i for i, step in enumerate(case.steps) if isinstance(step, Write)]
        stop = rng.choice(written[len(written) // 2 :])
        for step in case.steps[: stop + 1]:
            if isinstance(step, View):
                word = "OR REPLACE " if step.name in known else ""
                known.add(step.name)
                db.execute(f"CREATE {word}MATERIALIZED VIEW {step.name} AS {step.sql.spark}")
            elif isinstance(step, Drop):
                known.discard(step.name)
                db.execute(f"DROP MATERIALIZED VIEW {step.name}")
            elif isinstance(step, Write):
                token = write(db, step)
        if token is not None:
            db.wait(token)
        reports = verify(spark, db)
        later = [step for step in case.steps[stop + 1 :] if isinstance(step, Write)]
        for report in reports:
            assert report.differences == 0 and (report.compared or not report.complete), f"seed {seed}: {report}"
            if later:
                write(db, later.pop(0))
