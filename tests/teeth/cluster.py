"""Breaks of what docs/guarantees.md promises of a cluster: at least one per guarantee and per row."""

from __future__ import annotations

from tests.teeth.breaks import Break

CLUSTER = "viewserver/belvedere/cluster"
PROTOCOL = "viewserver/belvedere/protocol"
ENGINES = "tests/protocol/test_engine_versions.py"
SEEDS = range(20)
"""Histories of the simulator: as many as a break may need to show; all of them pass without one."""

GUARANTEES = [
    Break(
        name="INPUT is acknowledged before it is durable",
        claim="cluster 1 exactly once: what was acknowledged is durable",
        file=f"{PROTOCOL}/exactly_once.py",
        find="        flow.waiting.append(event)\n        return self._proceed(flow)",
        instead="        flow.waiting.append(event)\n        return [Acknowledge(event.request), *self._proceed(flow)]",
        noticed_by=(
            SEEDS,
            "tests/protocol/test_exactly_once.py::test_a_request_is_acknowledged_when_it_is_durable_and_not_before",
        ),
    ),
    Break(
        name="a plan takes what the plan before it took",
        claim="cluster 1 exactly once: each change is reflected once",
        file=f"{PROTOCOL}/exactly_once.py",
        find="        yield InputPiece(best.id, source, after, last)",
        instead="        yield InputPiece(best.id, source, Seq(best.first - 1), last)",
        noticed_by=(
            SEEDS,
            "tests/protocol/test_exactly_once.py::test_overlapping_chunks_of_two_distributors_are_cut",
        ),
    ),
    Break(
        name="a plan goes beyond the end of a source that was split",
        claim="cluster 1 exactly once: whatever moves or splits",
        file=f"{PROTOCOL}/lineage.py",
        find="            bound = source.arrived if source.last is None else min(source.arrived, source.last)",
        instead="            bound = source.arrived",
        noticed_by=("tests/protocol/test_sources.py::test_nothing_is_planned_beyond_the_end_and_it_is_reported_once",),
    ),
    Break(
        name="a plan is offered before its document is durable",
        claim="cluster 1 exactly once: work begins on durable plans only",
        file=f"{PROTOCOL}/coordinator.py",
        find="        self._planning = True\n        return found + self._asking.ask(lambda request: WriteDocument(",
        instead="        self._prepared = (plan, pointer)\n"
        "        return found + self._asking.ask(lambda request: WriteDocument(",
        noticed_by=("tests/protocol/test_coordinator.py",),
    ),
    Break(
        name="a write that is repeated is another write",
        claim="cluster 1 exactly once: a write whose answer was lost happens once",
        file=f"{CLUSTER}/client/database.py",
        find="store.write_base(table.stored, changes, own_clock, request))",
        instead='store.write_base(table.stored, changes, own_clock, ""))',
        noticed_by=("tests/cluster/test_client.py::test_a_write_whose_answer_was_lost_happens_once",),
    ),
    Break(
        name="a stage is computed before all of it is there",
        claim="cluster 2 snapshot consistency: an epoch is computed from all of its input",
        file=f"{PROTOCOL}/barrier.py",
        find="        return all(self._expected.get(s) == self._came.get(s, 0) for s in range(stage + 1))",
        instead="        return all(self._expected.get(s) is not None for s in range(stage + 1))",
        noticed_by=(SEEDS, "tests/protocol/test_barrier.py"),
    ),
    Break(
        name="payloads of one place are taken for one",
        claim="cluster 2 snapshot consistency: views on any servers equal those of one engine",
        file="viewserver/belvedere/engine/inbox.py",
        find="        for order, held in sorted(self._waiting.pop(stage, ()), key=lambda item: item[0]):",
        instead="        for order, held in sorted(dict(self._waiting.pop(stage, ())).items()):",
        noticed_by=("tests/engine/shard/test_random_views.py::test_random_views_equal_those_of_one_engine",),
    ),
    Break(
        name="reads of a snapshot follow the pool",
        claim="cluster 2 snapshot consistency: one snapshot, one epoch",
        file=f"{CLUSTER}/client/database.py",
        find="        super().__init__(database, self._known, pin, database.pins.unpin)",
        instead="        super().__init__(database, None, pin, database.pins.unpin)",
        noticed_by=(
            "tests/cluster/test_client_property.py",
            "tests/cluster/test_client.py::test_a_snapshot_is_pinned_and_stays",
        ),
    ),
    Break(
        name="base batches in the order of their arrival",
        claim="cluster 3 deterministic replay, 4 convergence: the order of the plan counts, not that of arrival",
        file="viewserver/belvedere/engine/inbox.py",
        find="        for order, held in sorted(self._waiting.pop(stage, ()), key=lambda item: item[0]):",
        instead="        for order, held in self._waiting.pop(stage, ()):",
        noticed_by=("tests/engine/shard/test_shard.py::test_one_view_on_any_number_of_servers",),
    ),
    Break(
        name="an attempt that was given up stays in the caches",
        claim="cluster 3 deterministic replay: an attempt that is done again writes the same bytes",
        file=f"{CLUSTER}/roles/work.py",
        find="            self._shard.undo(adopt.committed)\n",
        instead="",
        noticed_by=(SEEDS, "tests/cluster/test_work.py::test_attempts_that_are_given_up_leave_nothing"),
    ),
    Break(
        name="a token is covered by anything",
        claim="cluster 5 read your writes",
        file="viewserver/belvedere/protocol/reads.py",
        find="        positions.get(source, START) >= seq or (source not in positions and source not in listed)",
        instead="        source in positions or source not in listed",
        noticed_by=("tests/cluster/test_client_property.py",),
    ),
    Break(
        name="a session believes an old leader",
        claim="cluster 5 read your writes: a session never goes back",
        file=f"{CLUSTER}/client/epochs.py",
        find="            if self._session.at(known.epoch) == known.epoch:",
        instead="            if self._session.at(known.epoch) >= 0:",
        noticed_by=("tests/cluster/test_client.py::test_a_session_does_not_go_back_when_an_old_leader_answers",),
    ),
    Break(
        name="reads are answered by whoever is asked",
        claim="cluster 5 read your writes: a server answers what it owned and processed",
        file=f"{PROTOCOL}/reads.py",
        find="        nobody = np.full(len(buckets), -1, np.int32)\n",
        instead="        nobody = np.full(len(buckets), -1, np.int32)\n"
        "        return Answers(np.zeros(len(buckets), np.uint8), nobody, ())\n",
        noticed_by=(SEEDS, "tests/protocol/test_reads.py"),
    ),
    Break(
        name="base writes wait until the pool has taken them",
        claim="cluster 6 isolation: base writes never wait for a view",
        file="viewserver/belvedere/backend/served/base.py",
        find="        self._tell()\n        return put.found\n",
        instead="        self._tell()\n"
        "        while any(self.acknowledged(source) < seq for source, seq in put.found.items()):\n"
        "            time.sleep(0.01)\n        return put.found\n",
        noticed_by=("tests/cluster/test_pushing.py::test_base_writes_return_though_nobody_takes_what_is_pushed",),
    ),
    Break(
        name="the client waits until its write is in the views",
        claim="cluster 6 isolation: base writes never wait for a view",
        file=f"{CLUSTER}/client/database.py",
        find="        return self._send(served, changes, ts is None, request or uuid.uuid4().hex, deadline)",
        instead="        token = self._send(served, changes, ts is None, request or uuid.uuid4().hex, deadline)\n"
        "        self.wait(token, 5.0)\n        return token",
        noticed_by=("tests/cluster/test_client.py::test_writes_return_while_the_pool_stands_still",),
    ),
    Break(
        name="the store keeps rows for the views without a limit",
        claim="cluster 6 isolation: up to the configured backlog",
        file="viewserver/belvedere/backend/served/backlog.py",
        find='        return self._reason(found, self.limit) if found >= self.limit > 0 else ""',
        instead='        return ""',
        noticed_by=(
            "tests/backend/served/test_backlog.py::"
            "test_rows_are_refused_at_the_limit_and_taken_when_the_pool_has_caught_up",
            "tests/cluster/test_pushing.py::test_base_writes_return_though_nobody_takes_what_is_pushed",
        ),
    ),
    Break(
        name="a store that takes no writes is not named",
        claim="cluster 6 isolation: what holds a pool up is visible",
        file=f"{CLUSTER}/process/retrying.py",
        find="wanted=self._wanted, outage=self.trouble)",
        instead="wanted=self._wanted)",
        noticed_by=(
            "tests/cluster/test_process_faults.py::test_a_store_that_takes_no_writes_holds_commits_up_and_they_go_on",
        ),
    ),
    Break(
        name="a stalled pool does not say why",
        claim="cluster 6 isolation: a stalled pool names its view; a pool that does not get on says why",
        file=f"{PROTOCOL}/failure_detector.py",
        find="        if self.failures >= STALLED_AFTER:",
        instead="        if self.failures >= 1_000_000:",
        noticed_by=(
            "tests/cluster/test_process_faults.py::test_a_view_that_always_fails_is_named_and_tried_again",
            "tests/protocol/test_stuck_pools.py",
        ),
    ),
]

ROWS = [
    Break(
        name="a conflict does not end the lead",
        claim="one leader at a time gets anything into the record",
        file=f"{PROTOCOL}/leadership.py",
        find='        if answer.outcome == "conflict" and not self._proposal.doubtful:\n'
        "            return self._lose()",
        instead='        if answer.outcome == "conflict" and not self._proposal.doubtful:\n'
        "            return self._accepted(answer.version, answer.clock)",
        noticed_by=("tests/protocol/test_leadership.py::test_a_conflict_ends_the_lead",),
        tried=(SEEDS,),  # 10 conflicts in the first 60 histories; with the break nothing is wrong in the first 140
    ),
    Break(
        name="the record is swapped whatever its version",
        claim="one leader at a time gets anything into the record; every coordination keeps its seam's promise",
        file=f"{CLUSTER}/coordination/memory.py",
        find="            if (None if found is None else found.version) == version:",
        instead="            if found is None or version is not None:",
        noticed_by=("tests/cluster/test_coordination_record.py::test_swap_needs_the_version[memory]",),
    ),
    Break(
        name="ZooKeeper's record is swapped whatever its version",
        claim="one leader at a time gets anything into the record; every coordination keeps its seam's promise",
        file=f"{CLUSTER}/coordination/session.py",
        find="            written = link.ask(Set(path, bytes(data), version))",
        instead="            written = link.ask(Set(path, bytes(data), -1))",
        noticed_by=("tests/cluster/test_coordination_record.py::test_swap_needs_the_version",),
    ),
    Break(
        name="who left is still listed",
        claim="every coordination keeps its seam's promise",
        file=f"{CLUSTER}/coordination/memory.py",
        find="                self._drop_member()\n                self._members_changed()",
        instead="                self._drop_member()",
        noticed_by=(
            "tests/cluster/test_coordination.py::test_members_are_told_in_full_now_and_after_every_change[memory]",
        ),
    ),
    Break(
        name="a process that lost its session ends",
        claim="a zombie harms nothing: it begins anew",
        file=f"{CLUSTER}/process/process.py",
        find='                self.log.warning("begins again as a new incarnation", reason=ended.value)',
        instead="                return 1",
        noticed_by=("tests/cluster/test_process.py::test_a_process_that_slept_longer_than_its_session_begins_anew",),
    ),
    Break(
        name="a lease outlives its session",
        claim="a zombie harms nothing",
        file=f"{CLUSTER}/coordination/lease.py",
        find="now - self._asked < LEASE * self.timeout",
        instead="now - self._asked < 2 * self.timeout",
        noticed_by=("tests/cluster/test_lease.py",),
    ),
    Break(
        name="late writes are taken below the fence",
        claim="a zombie harms nothing; every store keeps its seam's promise",
        file="viewserver/belvedere/backend/memory.py",
        find="        return epoch <= self._fence",
        instead="        return epoch < 0",
        noticed_by=(
            "tests/backend/conformance/test_state_tables.py::test_a_late_write_revives_nothing_when_the_tombstone_is_gone",
        ),
        tried=(SEEDS,),
    ),
    Break(
        name="late writes are taken below the fence of the served store",
        claim="a zombie harms nothing; every store keeps its seam's promise",
        file="viewserver/belvedere/backend/served/tables.py",
        find="            if epoch <= self._collector.bounds.tombstones:\n                return []",
        instead="            if epoch < 0:\n                return []",
        noticed_by=(
            "tests/backend/conformance/test_state_tables.py::test_a_late_write_revives_nothing_when_the_tombstone_is_gone",
        ),
    ),
    Break(
        name="a server is released while it has a part",
        claim="members come and go without loss",
        file=f"{PROTOCOL}/withdraw.py",
        find="if m not in present and self.phases.get(m) is not WithdrawPhase.RELEASED]",
        instead="if self.phases.get(m) is not WithdrawPhase.RELEASED]",
        noticed_by=("tests/protocol/test_assignment.py",),
        tried=(SEEDS,),
    ),
    Break(
        name="nobody is released",
        claim="members come and go without loss, SIGTERM within ten seconds",
        file=f"{PROTOCOL}/withdraw.py",
        find="        for member in found:\n"
        "            self.phases[member] = WithdrawPhase.RELEASED\n        return found",
        instead="        return []",
        noticed_by=(
            "tests/protocol/test_assignment.py",
            "tests/cluster/test_process.py::test_a_view_server_that_is_asked_to_go_leaves_within_ten_seconds",
        ),
        tried=(SEEDS,),
    ),
    Break(
        name="the end waits for a second signal",
        claim="an end in time",
        file=f"{CLUSTER}/process/signals.py",
        find="        second, _, _ = select.select([told], [], [], seconds)",
        instead="        second, _, _ = select.select([told], [], [])",
        noticed_by=(
            "tests/cluster/test_signals.py::test_the_end_comes_in_time_although_the_main_thread_is_busy_elsewhere",
        ),
    ),
    Break(
        name="a second signal changes nothing",
        claim="an end in time",
        file=f"{CLUSTER}/process/signals.py",
        find="        second, _, _ = select.select([told], [], [], seconds)",
        instead="        second, _, _ = select.select([], [], [], seconds)",
        noticed_by=(
            "tests/cluster/test_signals.py::test_a_second_signal_ends_at_once",
            "tests/cluster/test_process.py::test_who_is_asked_twice_ends_at_once",
        ),
    ),
    Break(
        name="a server that says nothing is waited for",
        claim="a pool that does not get on says why: silence",
        file=f"{PROTOCOL}/failure_detector.py",
        find="        return self.silence(now) > self._quiet_ms << min(self.silences, MOST_DOUBLINGS)",
        instead="        return self.silence(now) > 1 << 60",
        noticed_by=("tests/protocol/test_stuck_pools.py::test_a_server_that_says_nothing_is_left_out",),
    ),
    Break(
        name="a pool that waits does not say for whom",
        claim="a pool that does not get on says why: steps that take long",
        file=f"{PROTOCOL}/failure_detector.py",
        find='        return self._silence if self.silences >= STALLED_AFTER else ""',
        instead='        return ""',
        noticed_by=(
            "tests/protocol/test_stuck_pools.py::test_a_step_that_takes_longer_than_silence_is_borne_comes_to_its_end",
        ),
    ),
    Break(
        name="no silence is borne longer than the one before",
        claim="a pool that does not get on says why: steps that take long come to their end",
        file=f"{PROTOCOL}/failure_detector.py",
        find="        return self.silence(now) > self._quiet_ms << min(self.silences, MOST_DOUBLINGS)",
        instead="        return self.silence(now) > self._quiet_ms",
        noticed_by=(
            "tests/protocol/test_stuck_pools.py::test_a_step_that_takes_longer_than_silence_is_borne_comes_to_its_end",
        ),
    ),
    Break(
        name="a batch without room is forgotten",
        claim="a pool that does not get on says why: no room to spill",
        file=f"{CLUSTER}/roles/batch_buffer.py",
        find="                self._incomplete[place] = error\n                raise",
        instead="                return",
        noticed_by=(
            "tests/cluster/test_process_faults.py::test_no_room_to_spill_is_a_failed_attempt_with_the_reason",
            "tests/cluster/test_process_faults.py::"
            "test_no_room_for_a_batch_that_came_before_its_generation_is_not_forgotten",
        ),
    ),
    Break(
        name="an epoch is named after a clock that was set",
        claim="a clock that is set names no epoch",
        file=f"{PROTOCOL}/coordinator.py",
        find="                if self.phase is CoordinatorPhase.LEADING and jump > CLOCK_OFF_MS:",
        instead="                if self.phase is CoordinatorPhase.LEADING and jump > 1 << 60:",
        noticed_by=("tests/protocol/test_stuck_pools.py::test_an_epoch_is_never_named_after_a_clock_that_was_set",),
        tried=(SEEDS,),
    ),
    Break(
        name="a clock that is off leads",
        claim="a clock that is set names no epoch",
        file=f"{PROTOCOL}/leadership.py",
        find="            if abs(own - answer.clock) > CLOCK_OFF_MS:\n                return self._stand_back(",
        instead="            if abs(own - answer.clock) > 1 << 60:\n                return self._stand_back(",
        noticed_by=("tests/protocol/test_leadership.py::test_a_clock_that_is_off_does_not_lead",),
        tried=(SEEDS,),
    ),
    Break(
        name="a pool begins anew on the state of an earlier life",
        claim="a store belongs to one pool, and is not counted twice",
        file=f"{CLUSTER}/roles/store_owner.py",
        find='    if not recorded and any(store.list_documents(prefix) for prefix in ("plan/", "catalog/")):',
        instead="    if recorded is None:",
        noticed_by=(
            "tests/cluster/test_owner.py::test_state_without_a_record_is_not_counted_twice",
            "tests/cluster/test_process_faults.py::test_a_pool_without_its_record_does_not_begin_anew_on_its_store",
        ),
    ),
    Break(
        name="a store of another pool is taken",
        claim="a store belongs to one pool",
        file=f"{CLUSTER}/roles/store_owner.py",
        find="        if other != mine:",
        instead="        if other == '':",
        noticed_by=("tests/cluster/test_owner.py::test_a_store_is_claimed_once_and_stays_with_its_pool",),
    ),
    Break(
        name="nobody compares rings",
        claim="all members send by the same ring",
        file=f"{PROTOCOL}/barrier.py",
        find="        if ring != report.ring:",
        instead="        if not ring:",
        noticed_by=("tests/protocol/test_barrier.py::test_two_rings_are_an_error",),
    ),
    Break(
        name="a ring depends on the order of its members",
        claim="all members send by the same ring",
        file=f"{PROTOCOL}/ring.py",
        find="        names = sorted(members)",
        instead="        names = list(members)",
        noticed_by=("tests/protocol/test_ring.py",),
    ),
    Break(
        name="fields of a newer protocol are refused",
        claim="two protocols work together",
        file=f"{PROTOCOL}/wire.py",
        find="            found = {}\n            _expect(dict, plain)\n",
        instead="            found = {}\n            _expect(dict, plain)\n"
        "            if not plain.keys() <= fields.keys():\n"
        '                raise _Mismatch("an unknown field")\n',
        noticed_by=(
            "tests/cluster/test_wire.py",
            "tests/cluster/test_process.py::test_members_of_two_protocols_and_engines_work_together",
        ),
    ),
    Break(
        name="an engine that rebuilds reads what it finds",
        claim="state of a view group is in one form as long as it is there",
        file="viewserver/belvedere/cluster/roles/work.py",
        find="state_engine(group.made, plan.engine, rebuilding)",
        instead="plan.engine",
        noticed_by=(
            "tests/cluster/test_work.py::test_state_stays_in_the_form_that_it_was_made_in_if_the_engine_cannot_read_it",
        ),
    ),
    Break(
        name="the next engine comes while views are rebuilt",
        claim="everybody who computes has the engines of all state",
        file=f"{PROTOCOL}/membership.py",
        find="        if self.oldest_state < self._engine:\n            return self._engine\n",
        instead="",
        noticed_by=(f"{ENGINES}::test_the_next_engine_waits_until_nothing_is_in_an_older_form",),
    ),
    Break(
        name="members come before views are rebuilt",
        claim="everybody who computes has the engines of all state",
        file=f"{PROTOCOL}/membership.py",
        find="member.oldest_engine, member.newest_engine, self.oldest_state)",
        instead="member.oldest_engine, member.newest_engine)",
        noticed_by=(f"{ENGINES}::test_members_that_lack_the_engine_of_older_state_come_too_early",),
    ),
    Break(
        name="only the newest plan says who can take part",
        claim="everybody who computes has the engines of all state",
        file=f"{PROTOCOL}/coordinator.py",
        find="return frozenset(self._catalog.current.made).union(*(opened.plan.made for opened in self.epochs.open))",
        instead="return frozenset(self._catalog.current.made)",
        noticed_by=(f"{ENGINES}::test_an_open_plan_of_the_catalog_before_still_needs_the_older_engine",),
    ),
    Break(
        name="a reader that failed is rebuilt as well",
        claim="a view that cannot be computed holds up no other",
        file="viewserver/belvedere/cluster/catalog/catalogs.py",
        find="names = newest | (readers - batch.failed.keys())",
        instead="names = newest | readers",
        noticed_by=(
            "tests/cluster/test_catalogs_rebuilt.py::test_readers_that_failed_do_not_keep_a_view_from_being_rebuilt",
        ),
    ),
    Break(
        name="a pool switches to a protocol that not all speak",
        claim="two protocols work together",
        file=f"{PROTOCOL}/membership.py",
        find="        return max(candidates, key=votes, default=floor)",
        instead="        return max(candidates, default=floor)",
        noticed_by=(
            "tests/protocol/test_membership.py::"
            "test_a_rolling_upgrade_switches_when_the_last_one_speaks_the_new_protocol",
        ),
    ),
    Break(
        name="a read sees the version that it should be below",
        claim="every store keeps its seam's promise",
        file="viewserver/belvedere/backend/memory.py",
        find="        found = bisect_left(self.epochs, below)\n        return self.values",
        instead="        found = bisect_left(self.epochs, below + 1)\n        return self.values",
        noticed_by=("tests/backend/conformance/test_state_tables.py::test_a_read_takes_the_newest_version_below",),
    ),
    Break(
        name="a read of the served store sees the version that it should be below",
        claim="every store keeps its seam's promise",
        file="viewserver/belvedere/backend/served/tables.py",
        find="        ids, below = ids[:_READ_IDS], min(below, _EPOCHS)",
        instead="        ids, below = ids[:_READ_IDS], min(below + 1, _EPOCHS)",
        noticed_by=("tests/backend/conformance/test_state_tables.py::test_a_read_takes_the_newest_version_below",),
    ),
    Break(
        name="the served store answers below its horizon",
        claim="a zombie harms nothing; every store keeps its seam's promise",
        file="viewserver/belvedere/backend/served/tables.py",
        find="        check_horizon(table, below, self._collector.bounds.horizon)",
        instead="        check_horizon(table, below, 0)",
        noticed_by=("tests/backend/conformance/test_state_tables.py::test_reads_below_the_horizon_are_refused",),
    ),
    Break(
        name="what a peer refused is not sent again",
        claim="every transport keeps its seam's promise",
        file=f"{CLUSTER}/transport/outbox.py",
        find="                self._hurried.clear()\n",
        instead="                self._hurried.clear()\n                self._received(frame)\n",
        noticed_by=("tests/cluster/test_transport.py::test_a_message_that_the_receiver_refused_comes_again",),
    ),
    Break(
        name="every report is passed on to every server",
        claim="an epoch needs O(servers) control messages",
        file=f"{PROTOCOL}/barrier.py",
        find="        missing.remove(report.sender)\n        return self._tell()",
        instead="        missing.remove(report.sender)\n        return self._tell() or [\n"
        "            (server, Expect(self.epoch, self.attempt, 0, 0)) for server in self._servers\n        ]",
        noticed_by=("tests/protocol/test_barrier.py::test_messages_grow_with_servers_and_stages_only",),
    ),
]

ENGINES = "tests/protocol/test_engine_versions.py"

BREAKS = [*GUARANTEES, *ROWS]
