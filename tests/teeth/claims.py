"""Breaks of what the guarantees of the embedded database stand on: the second table of docs/guarantees.md."""

from __future__ import annotations

from tests.teeth.breaks import Break

EMBEDDED = "viewserver/belvedere/embedded"
ENGINE = "viewserver/belvedere/engine"

BREAKS = [
    Break(
        name="doubles are rounded before they are added",
        claim="sums of doubles are exact",
        file=f"{ENGINE}/state/sums.py",
        find="        bits = plain(data).view(np.int64)",
        instead="        bits = plain(data.astype(np.float32).astype(np.float64)).view(np.int64)",
        noticed_by=("tests/engine/test_float_sums.py", "tests/engine/state/test_sums.py"),
    ),
    Break(
        name="verification adds doubles as DuckDB does",
        claim="verification can be believed: cancellation is no alarm",
        file="viewserver/belvedere/model/recompute.py",
        find='    return call.function in ("sum", "avg") and call.type == DOUBLE',
        instead="    return False",
        noticed_by=("tests/embedded/test_verify.py::test_cancellation_is_no_alarm",),
    ),
    Break(
        name="verification forgives the last digits of every double",
        claim="verification can be believed: one bit is enough to differ",
        file="viewserver/belvedere/model/verify.py",
        find="strict=True) if loose]",
        instead="strict=True) if loose or c.type.kind is Kind.DOUBLE]",
        noticed_by=("tests/embedded/test_verify.py::test_one_bit_is_enough_to_differ",),
    ),
    Break(
        name="an outer join is narrowed by half a disjunction",
        claim="plans mean what the query means",
        file="viewserver/belvedere/plan/rules/narrow_outer_joins.py",
        find="        return all(_drops(p, padded) for p in disjuncts(part))",
        instead="        return any(_drops(p, padded) for p in disjuncts(part))",
        noticed_by=("tests/plan/test_semantics.py",),
    ),
    Break(
        name="pmod follows the sign of its dividend",
        claim="Spark's meaning of functions and casts",
        file=f"{ENGINE}/expr/arithmetic.py",
        find="    data = np.where(rest < 0, _quotient(rest + b, b, type.dtype)[1], rest)",
        instead="    data = rest",
        noticed_by=("tests/engine/expr/test_spark.py",),
    ),
    Break(
        name="a damaged snapshot is read as it is",
        claim="a damaged file is named, with the byte",
        file=f"{EMBEDDED}/storage/arrays.py",
        find='    if xxhash.xxh3_64_intdigest(content) != expected["xxh3"]:',
        instead="    if expected is None:",
        noticed_by=("tests/embedded/test_snapshot.py::test_damage_is_named",),
    ),
    Break(
        name="a torn tail stays in the log",
        claim="a torn tail is cut",
        file=f"{EMBEDDED}/storage/log.py",
        find="            appender.truncate(offset)\n            appender.sync()",
        instead="            appender.sync()",
        noticed_by=("tests/embedded/test_log.py::test_a_torn_tail_is_cut_wherever_it_tears",),
    ),
    Break(
        name="a write that failed is left half in the log",
        claim="a full disk refuses writes and goes on when there is room",
        file=f"{EMBEDDED}/storage/log.py",
        find="            self._appender.truncate(segment.size)",
        instead="            pass",
        noticed_by=("tests/embedded/test_log.py::test_a_full_disk_loses_nothing_and_the_log_goes_on",),
    ),
    Break(
        name="a full disk stops the log for good",
        claim="a full disk refuses writes and goes on when there is room",
        file=f"{EMBEDDED}/storage/log.py",
        find="            self._take_back(segment, error)\n",
        instead="            raise self._stop(segment.path, error)\n",
        noticed_by=(
            "tests/embedded/test_faults.py::test_a_full_disk_refuses_writes_and_goes_on_when_there_is_room",
            "tests/embedded/test_commit.py::test_a_full_disk_fails_every_waiting_caller_and_later_calls_work",
        ),
    ),
    Break(
        name="a failed sync is passed over",
        claim="a failed fsync stops everything",
        file=f"{EMBEDDED}/storage/log.py",
        find="                raise self._stop(segment.path, error) from error\n"
        "            self._synced = self.sequence + 1",
        instead="                pass\n            self._synced = self.sequence + 1",
        noticed_by=(
            "tests/embedded/test_commit.py::test_a_failed_sync_stops_everything_and_names_the_reason",
            "tests/embedded/test_log.py::test_a_failed_sync_stops_the_log_for_good",
        ),
    ),
    Break(
        name="a failed sync of a snapshot that is begun is taken for a full disk",
        claim="a failed fsync stops everything",
        file=f"{EMBEDDED}/snapshots.py",
        find="            self._failed_with(error)\n            if wait:",
        instead="            self._give_up(error)\n            if wait:",
        noticed_by=(
            "tests/embedded/test_faults.py::"
            "test_whichever_sync_fails_the_database_stops_with_its_reason_and_a_restart_mends_it",
        ),
    ),
    Break(
        name="a refusal points to the line below",
        claim="refusals say where",
        file="viewserver/belvedere/sql/parser.py",
        find='        return before.count("\\n") + 1, offset',
        instead='        return before.count("\\n") + 2, offset',
        noticed_by=("tests/sql/test_refusals.py",),
    ),
    Break(
        name="nesting ends in the parser's stack",
        claim="refusals say what would work, whatever the text",
        file="viewserver/belvedere/sql/parser.py",
        find="        raise source.too_deep() from None",
        instead="        raise",
        noticed_by=("tests/sql/test_robustness.py",),
    ),
    Break(
        name="every error has one exit code",
        claim="refusals: exit codes",
        file="viewserver/belvedere/cli/exits.py",
        find="    return NOT_YET if isinstance(error, _LATER) else REFUSED",
        instead="    return REFUSED",
        noticed_by=("tests/cli/test_exits.py",),
    ),
    Break(
        name="a column of another type is taken for the one that is there",
        claim="refusals say what would work, and change nothing",
        file="viewserver/belvedere/model/ddl.py",
        find="        elif (before.type, before.nullable) != (column.type, column.nullable):",
        instead="        elif before.nullable != column.nullable:",
        noticed_by=("tests/embedded/test_manifests.py",),
    ),
    Break(
        name="rows that are not in memory are taken for new ones",
        claim="state that is not in memory changes nothing",
        file=f"{ENGINE}/engine.py",
        find='                found = self._store.load(f"DELTA {name}", missing)',
        instead='                found = self._store.load(f"DELTA {name}", missing[:0])',
        noticed_by=("tests/engine/test_residency.py",),
    ),
    Break(
        name="the engine knows the store",
        claim="the layers hold",
        file=f"{ENGINE}/inbox.py",
        find="from __future__ import annotations\n",
        instead="from __future__ import annotations\n\nimport belvedere.backend.seam  # noqa: F401\n",
        noticed_by=("lint-imports --no-logo",),
    ),
    Break(
        name="an example prints something else",
        claim="examples and pictures in the documentation are true",
        file="README.md",
        find="# {'customer': 7, 'n': 2, 'total': Decimal('10.00')}",
        instead="# {'customer': 7, 'n': 3, 'total': Decimal('10.00')}",
        noticed_by=("tests/docs/test_examples.py",),
    ),
]
