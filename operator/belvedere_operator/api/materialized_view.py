"""`MaterializedView`: a query, kept exact and fresh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from belvedere_operator.api.base_table import COLUMN_NAME, DELETE, RETAIN, SQL_NAME
from belvedere_operator.api.condition import Condition
from belvedere_operator.api.durations import POSITIVE
from belvedere_operator.api.fields import Rule, prop

AUTO, DUCKDB, SPARK = "auto", "duckdb", "spark"
EPOCHS = "epochs"
VERIFY, BUILD, REPAIR = "Verify", "Build", "Repair"
PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
_CRON_FIELD = r"[0-9A-Za-z*/,?#-]+"
CRON = rf"^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|{_CRON_FIELD}( +{_CRON_FIELD}){{4}})$"


@dataclass(frozen=True, slots=True)
class VerifySpec:
    """When the view is recomputed and compared, row by row."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.schedule) || self.changes || self.engine != 'auto'",
            "verify says nothing: give a schedule, changes: true, or an engine for when somebody asks",
        ),
    )
    schedule: str | None = prop(
        "Cron schedule (five fields, in UTC, or @daily and the like) of a Job that recomputes the view with an engine "
        "of its own at one epoch and compares every row; its result is the condition Verified.",
        maxLength=128,
        pattern=CRON,
    )
    deadline: str = prop("How long a verification may take before it is given up.", default="1h", duration=True)
    changes: bool = prop(
        "true: a changed query is built aside under a name of its own, recomputed and compared there, and takes its "
        "place only if no row differs. Until then, and if rows differ, the version before answers.",
        default=False,
    )
    engine: str = prop(
        "What recomputes it. duckdb: one pod, in its memory. spark: executors in pods of their own, in memory that "
        "does not grow with the view (spec.spark of the pool). auto: spark where there are many rows, and an image of "
        "it; else duckdb.",
        default=AUTO,
        enum=[AUTO, DUCKDB, SPARK],
    )


@dataclass(frozen=True, slots=True)
class MaterializedViewSpec:
    """What the view is."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.name) == has(oldSelf.name) && (!has(self.name) || self.name == oldSelf.name)",
            "a view cannot be renamed; create another one and delete this one when its readers have moved",
        ),
        Rule("self.pool == oldSelf.pool", "a view cannot move to another pool; create it there and delete it here"),
    )
    query: str = prop(
        "The SELECT, in Spark's SQL. Changing it builds the new version beside the old one, which answers until the "
        "new one takes its place in one epoch.",
        required=True,
        minLength=1,
        maxLength=262144,
    )
    name: str | None = prop(
        "The view's name in SQL, if it is not that of the resource (with '_' in place of '-').", schema=SQL_NAME
    )
    key: tuple[str, ...] = prop(
        "Columns of the SELECT list that identify a row, and by which rows are looked up. Default: the natural key.",
        default=(),
        minItems=1,
        maxItems=32,
        items_minLength=COLUMN_NAME["minLength"],
        items_maxLength=COLUMN_NAME["maxLength"],
        schema={"x-kubernetes-list-type": "atomic"},
    )
    pool: str = prop(
        "The ViewPool that maintains the view, in the same namespace. The pool `default` is made when it is needed.",
        default="default",
        maxLength=253,
    )
    freshness: str | None = prop(
        "How far the view may be behind its base tables. The condition Fresh says whether it is; the strictest of a "
        "pool is the lag that its autoscaler aims at.",
        duration=True,
        rules=(Rule(POSITIVE, "freshness must be longer than nothing"),),
    )
    retention: str | None = prop(
        "How long history of the view can be read; at most the retention of the pool.", duration=True
    )
    build: str = prop(
        "How the view is built from rows that are there. epochs: in slices, beside views in service. spark: by a Job "
        "with executors of its own, while writes go on. auto: spark over tables with many bytes, where there is an "
        "image of it; else epochs.",
        default=AUTO,
        enum=[AUTO, EPOCHS, SPARK],
    )
    verify: VerifySpec | None = prop("When the view is recomputed and compared. Default: when somebody asks.")
    suspend: bool = prop(
        "true: the view is taken out of its pool; it costs nothing and cannot be read. false again builds it anew.",
        default=False,
    )
    reclaim_policy: str = prop(
        "What happens to the view when the resource is deleted: Delete drops it; Retain leaves it in the pool, "
        "maintained, for a resource of the same name to take up again.",
        default=DELETE,
        enum=[DELETE, RETAIN],
    )


@dataclass(frozen=True, slots=True)
class ZoneStatus:
    """A part of the view's plan in which rows lie under one key."""

    name: str = prop("What the zone is called in metrics.", required=True)
    key: tuple[str, ...] = prop("The columns of its key.", default=())


@dataclass(frozen=True, slots=True)
class BuildStatus:
    """The newest build of the view."""

    started_at: str | None = prop("When it was begun.", format="date-time")
    completed_at: str | None = prop("When the view it made came into service.", format="date-time")
    progress: int | None = prop("Percent that is done.", minimum=0, maximum=100)


@dataclass(frozen=True, slots=True)
class VerificationStatus:
    """The newest verification of the view."""

    time: str | None = prop("When it ended.", format="date-time")
    epoch: int | None = prop("The epoch at which the view was compared.")
    rows: int | None = prop("Rows that were compared.")
    differences: int | None = prop("Rows that are missing, too many, or different.")
    message: str | None = prop("What it found.")
    engine: str | None = prop("What recomputed it: duckdb or spark.")


@dataclass(frozen=True, slots=True)
class RepairStatus:
    """The newest repair of the view."""

    time: str | None = prop("When it ended.", format="date-time")
    whole: bool | None = prop("Whether nothing is left that is wrong.")
    message: str | None = prop("What it did.")


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A Job that works on the view: the newest of its kind."""

    kind: str = prop("What it does: Verify, Build or Repair.", required=True)
    name: str = prop("Name of the Job.", required=True)
    phase: str = prop("Pending, Running, Succeeded or Failed.", required=True)
    engine: str | None = prop("duckdb or spark.")
    request: str | None = prop("The annotation that asked for it; none: a schedule did, or a change.")
    started_at: str | None = prop("When it was begun.", format="date-time")
    completed_at: str | None = prop("When it ended.", format="date-time")
    attempts: int | None = prop("How often its pod was started.", minimum=0)
    executors: int | None = prop("Executors that run.", minimum=0)
    message: str | None = prop("Why it waits or failed.")


@dataclass(frozen=True, slots=True)
class MaterializedViewStatus:
    """What was found."""

    observed_generation: int | None = prop("The generation that the status is about.", minimum=0)
    conditions: tuple[Condition, ...] = prop(
        "Accepted: the query can be maintained. Built: the view holds what its query says. Ready: it can be read. "
        "Fresh: it is as near to its base tables as it should be. Complete: no row is in quarantine. Verified: the "
        "newest verification found no difference.",
        default=(),
        schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    sql_name: str | None = prop("The view's name in SQL.")
    plan_version: int | None = prop("The version of the view that is in service; it grows with every change.")
    zones: tuple[ZoneStatus, ...] = prop("The zones of its plan.", default=())
    zone_path: str | None = prop("The keys of its zones, one behind the other.")
    rows: int | None = prop("Rows, about.")
    bytes: int | None = prop("Bytes of rows, about.")
    size: str | None = prop("The same for people.")
    lag: str | None = prop("How far it is behind, about.")
    epoch: int | None = prop("The newest epoch when the figures were taken; of a view that failed, its last good one.")
    quarantined: int | None = prop("Rows that cannot be computed, see `kubectl belvedere quarantine`.")
    dependants: tuple[str, ...] = prop("Names in SQL of the views that read it.", default=())
    last_build: BuildStatus | None = prop("The newest build.")
    last_verification: VerificationStatus | None = prop("The newest verification.")
    last_repair: RepairStatus | None = prop("The newest repair.")
    repair_request: str | None = prop("The annotation belvedere.dev/repair that was answered last.")
    jobs: tuple[JobStatus, ...] = prop("Jobs that work on the view, the newest of each kind.", default=())
    verify_request: str | None = prop("The annotation belvedere.dev/verify that was answered last.")
    applied: str | None = prop("Digest of the description that the pool has.")
    figures_time: str | None = prop("When the figures (rows, bytes, lag, epoch) were taken.", format="date-time")
