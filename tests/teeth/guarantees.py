"""Breaks of what docs/guarantees.md promises of the embedded database: at least one per guarantee and per claim."""

from __future__ import annotations

from tests.teeth.breaks import Break

EMBEDDED = "viewserver/belvedere/embedded"
ENGINE = "viewserver/belvedere/engine"

EXACTLY_ONCE = [
    Break(
        name="acknowledged without a sync",
        claim="1 exactly once: an acknowledged write is there after any crash",
        file=f"{EMBEDDED}/storage/log.py",
        find="        if self._sync:\n            try:\n                self._appender.sync()",
        instead="        if self._sync:\n            try:\n                pass",
        noticed_by=(
            "tests/embedded/test_faults.py::test_power_cuts_lose_nothing_acknowledged",
            "tests/embedded/test_log.py::"
            "test_after_any_crash_what_was_acknowledged_is_there_once_and_nothing_is_there_by_half",
        ),
    ),
    Break(
        name="the end of the log is not replayed",
        claim="1 exactly once: an acknowledged write is there after any crash",
        file=f"{EMBEDDED}/recovery.py",
        find="        if groups:\n            runtime.process(groups)",
        instead="        if groups[:-1]:\n            runtime.process(groups[:-1])",
        noticed_by=(
            "tests/embedded/test_crash.py",
            "tests/embedded/test_faults.py::test_power_cuts_lose_nothing_acknowledged",
        ),
    ),
    Break(
        name="half a record counts",
        claim="1 exactly once: what was not acknowledged is there whole or not at all; a damaged file is named",
        file=f"{EMBEDDED}/storage/records.py",
        find="    if head.end - base > len(content) or xxhash.xxh3_64_intdigest(body) != head.checksum:",
        instead="    if head.end - base > len(content):",
        noticed_by=(
            "tests/embedded/test_log.py::test_a_record_of_which_any_sectors_reached_the_disk_is_there_whole_or_not_at_all",
            "tests/embedded/test_log.py::test_a_damaged_middle_is_an_error_that_says_where",
        ),
    ),
    Break(
        name="a snapshot counts before its files are durable",
        claim="1 exactly once: a crash leaves the old or the new snapshot",
        file=f"{EMBEDDED}/storage/snapshot.py",
        find="        for name in self._entries:\n"
        '            arrays.sync_file(self._files, f"{self._directory}/{name}")\n',
        instead="",
        noticed_by=(
            "tests/embedded/test_snapshot.py::test_a_crash_at_any_operation_leaves_the_old_or_the_new_snapshot",
        ),
    ),
]

SNAPSHOT_CONSISTENCY = [
    Break(
        name="an epoch is visible before its rows are",
        claim="2 snapshot consistency: all views of an epoch at once",
        file=f"{EMBEDDED}/runtime.py",
        find="        touched: list[tuple[ViewTable, ViewDelta]] = []\n",
        instead="        touched: list[tuple[ViewTable, ViewDelta]] = []\n        self.publish(epoch)\n",
        noticed_by=("tests/embedded/test_visibility.py",),
    ),
    Break(
        name="a snapshot reads what is newest",
        claim="2 snapshot consistency: reads of one snapshot are of one epoch",
        file=f"{EMBEDDED}/reading.py",
        find="            read = self._range_at(found, range, every, epoch)",
        instead="            read = found.range(range, every)[1]",
        noticed_by=(
            "tests/embedded/test_database.py::test_a_snapshot_reads_several_views_at_one_epoch_while_writes_go_on",
            "tests/embedded/test_database.py::test_replacing_a_view_swaps_it_and_its_dependants_at_one_epoch",
        ),
    ),
    Break(
        name="a replaced view leaves its difference out of the history",
        claim="2 snapshot consistency: a view and its dependants are replaced at one epoch",
        file=f"{EMBEDDED}/builds.py",
        find="                rows.append(_labelled(table.shape, difference(node.schema, old, table)))",
        instead="                pass",
        noticed_by=("tests/embedded/test_database.py::test_replacing_a_view_swaps_it_and_its_dependants_at_one_epoch",),
    ),
    Break(
        name="a call is written row by row",
        claim="2 snapshot consistency: one call is atomic",
        file="viewserver/belvedere/model/writing.py",
        find="        return self._write(\n"
        "            table, lambda to: to.puts(rows), ts, timeout, ordered=False, borrowed=is_frame(rows), "
        "request=request\n        )",
        instead="        for part in rows if isinstance(rows, list) and rows else [rows]:\n"
        "            def one(to, part=part):\n                return to.puts(part)\n"
        "            token = self._write(table, one, ts, timeout, ordered=False, borrowed=is_frame(rows), request='')\n"
        "        return token",
        noticed_by=("tests/embedded/test_visibility.py::test_a_call_is_in_one_epoch_with_all_that_it_writes",),
    ),
    Break(
        name="a condition that is not known lets rows pass",
        claim="2 snapshot consistency: every view equals its query",
        file=f"{ENGINE}/operators/selection.py",
        find="        keep = (verdict.data & (status == Status.VALUE)) | failed",
        instead="        keep = verdict.data | (status != Status.VALUE)",
        noticed_by=(
            "tests/views/test_views.py",
            "tests/properties/test_views_equal_recomputation.py",
            "tests/tpch/test_tpch.py",
        ),
    ),
]

REPLAY = [
    Break(
        name="groups of one step in the wrong order",
        claim="3 deterministic replay: other groups of epochs give the same rows",
        file=f"{EMBEDDED}/runtime.py",
        find="        for group in groups:\n            for entry in group.entries:",
        instead="        for group in reversed(groups):\n            for entry in group.entries:",
        noticed_by=("tests/embedded/test_replay.py",),
    ),
    Break(
        name="state of another engine is loaded",
        claim="3 deterministic replay: state is loaded for the plan and engine that made it",
        file=f"{ENGINE}/engine.py",
        find='return f"{ENGINE_VERSION}:" + ",".join(',
        instead='return ",".join(',
        noticed_by=("tests/embedded/test_reopen.py::test_another_engine_version_is_rebuilt_from_base_rows",),
    ),
    Break(
        name="a snapshot is opened with a new plan",
        claim="3 deterministic replay: state is loaded for the plan that made it",
        file=f"{EMBEDDED}/recovery.py",
        find='            kept = [view for view in plan_of(manifest["plan"]) if view.name in catalog.views]',
        instead="            kept = []",
        noticed_by=("tests/embedded/test_reopen.py::test_state_is_loaded_after_views_were_replaced_and_dropped",),
    ),
    Break(
        name="operators begin empty after a restart",
        claim="3 deterministic replay: dumped state goes on as before",
        file=f"{ENGINE}/engine.py",
        find='            if hasattr(operator, "load"):',
        instead='            if hasattr(operator, "load") and "Join" not in type(task).__name__:',
        noticed_by=("tests/engine/test_engine.py::test_state_that_was_dumped_and_loaded_goes_on_as_before",),
    ),
]

CONVERGENCE = [
    Break(
        name="a put beats a delete of its timestamp that comes later",
        claim="4 convergence: a delete beats a put",
        file=f"{ENGINE}/state/kernels/merge.py",
        find="                    if t >= words[at]:\n                        flags[at_flag] = DEAD",
        instead="                    if t > words[at]:\n                        flags[at_flag] = DEAD",
        noticed_by=(
            "tests/engine/state/test_delta_table.py::test_a_delete_beats_a_put_of_equal_time_in_either_order",
            "tests/properties/test_convergence.py::test_order_and_repetition_do_not_matter",
        ),
    ),
    Break(
        name="of two puts with one timestamp the earlier wins",
        claim="4 convergence: of equal timestamps the later (seq, position) wins",
        file=f"{ENGINE}/state/kernels/merge.py",
        find="                    if t >= words[at]:\n                        if full:",
        instead="                    if t > words[at]:\n                        if full:",
        noticed_by=(
            "tests/properties/test_convergence.py::test_of_two_puts_with_one_timestamp_the_later_wins_whichever_it_is",
            "tests/engine/state/test_delta_table.py::test_against_the_model",
            "tests/views/test_views.py",
        ),
    ),
    Break(
        name="ties by value are settled by arrival",
        claim="4 convergence: where the value settles ties no order matters",
        file=f"{ENGINE}/state/delta_table.py",
        find="            changes = settle(changes, ids, self._cells, self._standing(ids, changes.ts))",
        instead="            pass",
        noticed_by=(
            "tests/properties/test_convergence.py::test_where_the_value_settles_ties_no_order_matters",
            "tests/engine/state/test_delta_table.py::test_of_puts_with_one_timestamp_the_greatest_value_wins_in_any_order",
        ),
    ),
    Break(
        name="a value that stands already does not compete for a tie",
        claim="4 convergence: where the value settles ties no order matters",
        file=f"{ENGINE}/state/ties.py",
        find="        contested = stands | _repeated(group, written)",
        instead="        stands[:] = False\n        contested = _repeated(group, written)",
        noticed_by=(
            "tests/properties/test_convergence.py::test_where_the_value_settles_ties_no_order_matters",
            "tests/engine/state/test_delta_table.py::test_against_the_model",
        ),
    ),
    Break(
        name="cells are overwritten by older ones",
        claim="4 convergence: the same changes in any order give the same views",
        file=f"{ENGINE}/state/kernels/merge.py",
        find="        if (full or present[c, i] != 0) and t >= side[k, 1 + c]:",
        instead="        if full or present[c, i] != 0:",
        noticed_by=(
            "tests/engine/state/test_delta_table.py::test_order_does_not_matter_for_distinct_timestamps",
            "tests/properties/test_convergence.py::test_order_and_repetition_do_not_matter",
        ),
    ),
    Break(
        name="changes of a call in the wrong order",
        claim="4 convergence: of equal timestamps the later position wins, wherever calls are cut",
        file=f"{ENGINE}/state/kernels/merge.py",
        find="        for i in range(b, stop):\n            s, p = locate(",
        instead="        for i in range(stop - 1, b - 1, -1):\n            s, p = locate(",
        noticed_by=("tests/properties/test_convergence.py::test_equal_timestamps_follow_the_lineage_of_their_row",),
    ),
    Break(
        name="tombstones are collected at once",
        claim="4 convergence: within the tombstone retention",
        file=f"{ENGINE}/state/delta_table.py",
        find="        while self._tombstones and self._tombstones[0][0] < horizon_us:",
        instead="        while self._tombstones:",
        noticed_by=(
            "tests/engine/state/test_delta_table.py::test_collected_tombstones_free_their_slots_and_no_longer_mask",
            "tests/properties/test_convergence.py::test_order_and_repetition_do_not_matter",
        ),
    ),
]

READ_YOUR_WRITES = [
    Break(
        name="nobody waits for a token",
        claim="5 read your writes: a read after a token includes the write, or says that it does not",
        file=f"{EMBEDDED}/reading.py",
        find="        if self.epoch < wanted and not self._wait_for(wanted, timeout):",
        instead="        if wanted < 0:",
        noticed_by=(
            "tests/embedded/test_database.py::test_a_write_is_read_back_through_its_token",
            "tests/embedded/test_database.py::test_a_token_that_is_not_committed_in_time_is_not_yet",
        ),
    ),
    Break(
        name="epochs go back",
        claim="5 read your writes: epochs never go back",
        file=f"{EMBEDDED}/reading.py",
        find="        self.epoch = epoch\n",
        instead="        database._taken = getattr(database, '_taken', 0) + 1\n"
        "        self.epoch = epoch - 1_000_000 * (database._taken % 2)\n",
        noticed_by=("tests/embedded/test_transfers.py",),
    ),
    Break(
        name="a reading process goes back to its beginning",
        claim="5 read your writes: epochs never go back, across restarts of the writer",
        file=f"{EMBEDDED}/reader.py",
        find="            self._refresh()\n            return self._at.epoch\n",
        instead="            self._refresh()\n            self._turn = getattr(self, '_turn', 0) + 1\n"
        "            return self._at.epoch - 1000 * (self._turn % 2)\n",
        noticed_by=("tests/embedded/test_crash.py",),
    ),
]

ISOLATION = [
    Break(
        name="backlog without a limit",
        claim="6 isolation: writes wait at the configured backlog",
        file=f"{EMBEDDED}/storage/commit.py",
        find="self.rows < self._backlog_rows and self.bytes < self._backlog_bytes)",
        instead="True)",
        noticed_by=(
            "tests/embedded/test_commit.py::test_the_backlog_makes_writers_wait_until_the_engine_has_caught_up",
            "tests/embedded/test_isolation.py::test_writes_return_while_views_stand_still_and_wait_at_the_backlog_only",
        ),
    ),
    Break(
        name="writes wait until they are in the views",
        claim="6 isolation: writes never wait for a view",
        file=f"{EMBEDDED}/database.py",
        find="        return self._committer.submit(entry, timeout=timeout)",
        instead="        return self._applied(self._committer.submit(entry, timeout=timeout))",
        noticed_by=(
            "tests/embedded/test_isolation.py::test_writes_return_while_views_stand_still_and_wait_at_the_backlog_only",
        ),
    ),
    Break(
        name="writes wait while a view is built",
        claim="6 isolation: building or replacing a view does not stop writes",
        file=f"{EMBEDDED}/database.py",
        find="        return self._committer.submit(entry, timeout=timeout)",
        instead="        self._runtime.wait_until(lambda: self._runtime.builds.current is None)\n"
        "        return self._committer.submit(entry, timeout=timeout)",
        noticed_by=("tests/embedded/test_isolation.py::test_writes_return_while_a_view_is_built_or_replaced",),
    ),
    Break(
        name="a build is one piece",
        claim="6 isolation: building a view does not stop the others",
        file=f"{EMBEDDED}/builds.py",
        find="        while self._advance_once(current) and time.monotonic() - started < PIECE_SECONDS:",
        instead="        while self._advance_once(current) and started:",
        noticed_by=("tests/embedded/test_isolation.py::test_views_in_service_go_on_while_another_is_built",),
    ),
    Break(
        name="a build misses what is written meanwhile",
        claim="6 isolation: building goes on beside writes",
        file=f"{ENGINE}/engine.py",
        find="operator.apply_below(base[task.table], below)",
        instead="None",
        noticed_by=(
            "tests/engine/test_engine.py::test_a_view_built_among_running_ones_while_rows_change",
            "tests/embedded/test_database.py::test_views_are_built_beside_writes",
        ),
    ),
]

NOTHING_SILENTLY = [
    Break(
        name="rows that fail are dropped",
        claim="7 nothing is dropped silently: what cannot be computed is in quarantine",
        file=f"{ENGINE}/operators/view.py",
        find="            if bad is not None:",
        instead="            if bad is not None and not len(bad.delta):",
        noticed_by=(
            "tests/properties/test_quarantine.py::test_failing_rows_and_groups_come_and_go[0]",
            "tests/embedded/test_database.py::test_rows_that_fail_are_in_quarantine_until_they_are_mended",
            "tests/embedded/test_verify.py::test_rows_in_quarantine_are_counted_and_views_above_compared",
            "tests/embedded/test_verify.py::test_verification_agrees_with_every_story_of_quarantine",
            "tests/engine/shard/test_random_views.py::test_rows_that_fail_are_in_quarantine_wherever_they_lie",
            "tests/cluster/test_client.py::test_rows_that_fail_are_in_quarantine",
        ),
    ),
    Break(
        name="views above an incomplete view pass for complete",
        claim="7 nothing is dropped silently: verification of dependants says so",
        file="viewserver/belvedere/model/verify.py",
        find="        return self.quarantined == 0 and self.quarantined_below == 0",
        instead="        return self.quarantined == 0",
        noticed_by=("tests/embedded/test_verify.py::test_rows_in_quarantine_are_counted_and_views_above_compared",),
    ),
    Break(
        name="every view says that it is complete",
        claim="7 nothing is dropped silently: the status of a view says so",
        file=f"{EMBEDDED}/status.py",
        find='            "complete": len(view.quarantine) == 0,',
        instead='            "complete": True,',
        noticed_by=("tests/embedded/test_database.py::test_rows_that_fail_are_in_quarantine_until_they_are_mended",),
    ),
    Break(
        name="broken rows of a file are left out without a word",
        claim="7 nothing is dropped silently: broken rows of files are reported by line",
        file="viewserver/belvedere/cli/rowfiles.py",
        find="        problems = problems + [Problem(lines[i], reason) for i, reason in broken.items()]\n",
        instead="",
        noticed_by=("tests/cli/test_load.py", "tests/cli/test_rowfiles.py"),
    ),
]

BREAKS = [
    *EXACTLY_ONCE,
    *SNAPSHOT_CONSISTENCY,
    *REPLAY,
    *CONVERGENCE,
    *READ_YOUR_WRITES,
    *ISOLATION,
    *NOTHING_SILENTLY,
]
