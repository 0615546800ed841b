"""Breaks of the protocol's leader: who leads and who takes part, what is planned, committed and told."""

from __future__ import annotations

from tests.teeth.breaks import HISTORIES, Break

PROTOCOL = "viewserver/belvedere/protocol"
REPAIRING = "tests/protocol/test_repairing.py"
OWNERS = "tests/cluster/test_repairing.py"

BREAKS = [
    Break(
        name="digest of a plan not checked at takeover",
        claim="a leader goes on only from the plan that the record names",
        file=f"{PROTOCOL}/restoring.py",
        find="if event.data is None or wire.digest(event.data) != pointer.digest:",
        instead="if event.data is None:",
        noticed_by=(HISTORIES,),
    ),
    Break(
        name="successor publishes nothing",
        claim="readers of the store learn of every last commit",
        file=f"{PROTOCOL}/coordinator.py",
        find=("            found.append(Publish(epochs.last_plan))  # the predecessor may not have come to it\n"),
        instead="",
        noticed_by=(HISTORIES,),
    ),
    Break(
        name="prepared plan leaks into a later term",
        claim="a new term starts from the record alone",
        file=f"{PROTOCOL}/coordinator.py",
        find=("        self._prepared: tuple[EpochPlan, Pointer] | None = None\n"),
        instead=('        self._prepared = getattr(self, "_prepared", None)\n'),
        noticed_by=("tests/protocol/test_takeover.py::test_a_plan_that_was_prepared_in_an_earlier_term_is_forgotten",),
        tried=(HISTORIES,),
    ),
    Break(
        name="three epochs open",
        claim="at most two epochs are open",
        file=f"{PROTOCOL}/coordinator.py",
        find="len(self.epochs.open) - len(commits) < MAX_OPEN:",
        instead="len(self.epochs.open) - len(commits) <= MAX_OPEN:",
        noticed_by=("tests/protocol/test_coordinator.py::test_members_come_and_go",),
        tried=(HISTORIES,),
    ),
    Break(
        name="INPUT removed when it is planned",
        claim="INPUT stays until its epoch is committed",
        file=f"{PROTOCOL}/coordinator.py",
        find="collectable(self._committed_positions, self._index)",
        instead="collectable(self.sources.planned, self._index)",
        noticed_by=(HISTORIES,),
    ),
    Break(
        name="generation keeps its number",
        claim="every generation has a number of its own",
        file=f"{PROTOCOL}/coordinator.py",
        find="number = Attempt(old.generation + 1)",
        instead="number = Attempt(max(1, old.generation))",
        noticed_by=(HISTORIES,),
    ),
    Break(
        name="a clock that jumps is believed",
        claim="an epoch is not named after a time that is far ahead",
        file=f"{PROTOCOL}/coordinator.py",
        find="and jump > CLOCK_OFF_MS:",
        instead="and jump > CLOCK_OFF_MS << 40:",
        noticed_by=(
            HISTORIES,
            "tests/protocol/test_stuck_pools.py::test_an_epoch_is_never_named_after_a_clock_that_was_set",
        ),
    ),
    Break(
        name="commits are not told",
        claim="members learn of commits and let go",
        file=f"{PROTOCOL}/coordinator.py",
        find=("            found += self._to_all(Committed(plan.epoch))\n"),
        instead="",
        noticed_by=(HISTORIES,),
    ),
    Break(
        name="commits are not published",
        claim="readers of the store learn of commits",
        file=f"{PROTOCOL}/coordinator.py",
        find=("            plan = done.plan\n            found.append(Publish(plan))\n"),
        instead=("            plan = done.plan\n"),
        noticed_by=(HISTORIES,),
    ),
    Break(
        name="plan in the record before its document",
        claim="a plan is durable before the record names it",
        file=f"{PROTOCOL}/coordinator.py",
        find=(
            "        self._planning = True\n"
            "        return found + self._asking.ask(lambda request: WriteDocument(request, pointer"
        ),
        instead=(
            "        self._prepared = (plan, pointer)\n"
            "        return found + self._asking.ask(lambda request: WriteDocument(request, pointer"
        ),
        noticed_by=(HISTORIES,),
    ),
    Break(
        name="catalog in a plan before its document",
        claim="a catalog is durable before a plan names it",
        file=f"{PROTOCOL}/coordinator.py",
        find="Offer(event, catalog_document(event.version, self._term, event.ticket))",
        instead="Offer(event, catalog_document(event.version, self._term, event.ticket), True)",
        noticed_by=(HISTORIES,),
    ),
    Break(
        name="what was offered to a leader that is lost is taken",
        claim="a leader begins a term with nothing that was offered before",
        file=f"{PROTOCOL}/coordinator.py",
        find=("        self._catalog = CatalogBook(options.target_ms)\n"),
        instead=('        self._catalog = getattr(self, "_catalog", CatalogBook(options.target_ms))\n'),
        noticed_by=(
            "tests/protocol/test_takeover.py::test_a_catalog_that_was_offered_in_an_earlier_term_is_forgotten",
        ),
        tried=(HISTORIES,),
    ),
    Break(
        name="a successor forgets how far a build is",
        claim="a build goes on where the last plan left it",
        file=f"{PROTOCOL}/catalog.py",
        find="        parts = [part for part in last.slices if part.stop < BUCKETS]",
        instead="        parts = [part for part in last.slices if part.stop > BUCKETS]",
        noticed_by=(range(300, 400),),  # a leader that is lost in the middle of a build is rare
    ),
    Break(
        name="a build skips a bucket",
        claim="a build takes every bucket once",
        file=f"{PROTOCOL}/catalog.py",
        find="Slice(view_group, at, min(BUCKETS, at + size), since, over=over)",
        instead="Slice(view_group, at and at + 900, min(BUCKETS, at + size), since, over=over)",
        noticed_by=(HISTORIES,),
    ),
    Break(
        name="any version of the catalog is taken",
        claim="two users cannot both change one catalog",
        file=f"{PROTOCOL}/catalog.py",
        find="if event.version != self.current.version + 1:",
        instead="if event.version < self.current.version:",
        noticed_by=(
            HISTORIES,
            "tests/protocol/test_coordinator.py::test_catalogs_that_do_not_follow_are_refused",
        ),
    ),
    Break(
        name="open epochs are not done again",
        claim="a new generation does open epochs again",
        file=f"{PROTOCOL}/epoch.py",
        find="        return [self._begin(epoch) for epoch in self.open]",
        instead="        return [self._begin(epoch) for epoch in self.open[:1]]",
        noticed_by=(HISTORIES,),
    ),
    Break(
        name="names of epochs do not grow",
        claim="epochs only grow",
        file=f"{PROTOCOL}/epoch.py",
        find="return Epoch(max(now, last + 1))",
        instead="return Epoch(now)",
        noticed_by=(HISTORIES,),
    ),
    Break(
        name="epochs committed out of order",
        claim="epochs commit in order",
        file=f"{PROTOCOL}/epoch.py",
        find=("            if not epoch.acknowledged:\n                break"),
        instead=("            if not epoch.acknowledged:\n                continue"),
        noticed_by=("tests/protocol/test_epoch.py::test_epochs_are_committed_in_their_order",),
        tried=(HISTORIES,),
    ),
    Break(
        name="acknowledgements survive a generation",
        claim="an epoch is committed by acknowledgements of one generation",
        file=f"{PROTOCOL}/epoch.py",
        find="        return [self._begin(epoch) for epoch in self.open]",
        instead="        return [self._begin(epoch) for epoch in self.open if not epoch.acknowledged]",
        noticed_by=(
            HISTORIES,
            "tests/protocol/test_epoch.py::test_an_epoch_that_is_acknowledged_and_not_committed_is_done_again",
        ),
    ),
    Break(
        name="who was silent never comes back",
        claim="a member that was left out comes back",
        file=f"{PROTOCOL}/membership.py",
        find="return name in self._shunned and self._shunned[name].until > self._now",
        instead="return name in self._shunned",
        noticed_by=(HISTORIES,),
    ),
    Break(
        name="a claim keeps the term",
        claim="each leader has a term of its own",
        file=f"{PROTOCOL}/leadership.py",
        find="term=Term(record.state.term + 1), leader=self._me)",
        instead="term=Term(record.state.term), leader=self._me)",
        noticed_by=(HISTORIES,),
    ),
    Break(
        name="a leader whose clock is off leads",
        claim="a leader's clock is near ZooKeeper's",
        file=f"{PROTOCOL}/leadership.py",
        find="            if abs(own - answer.clock) > CLOCK_OFF_MS:",
        instead="            if own < 0:",
        noticed_by=("tests/protocol/test_leadership.py::test_a_clock_that_is_off_does_not_lead",),
        tried=(HISTORIES,),
    ),
    Break(
        name="an unknown result is taken for success",
        claim="an unknown compare-and-set is looked up",
        file=f"{PROTOCOL}/leadership.py",
        find=('        if answer.outcome == "done":\n            return self._accepted(answer.version, answer.clock)'),
        instead=(
            '        if answer.outcome != "conflict":\n'
            "            return self._accepted(max(answer.version, self._version + 1), answer.clock or self._now)"
        ),
        noticed_by=(HISTORIES,),
    ),
    Break(
        name="protocols go back",
        claim="the protocol of a pool never goes back",
        file=f"{PROTOCOL}/membership.py",
        find="        floor = max(self._floor, protocol, 0 if current is None else current.protocol)",
        instead="        floor = 0",
        noticed_by=(
            "tests/protocol/test_membership.py::test_a_rolling_upgrade_switches_when_the_last_one_speaks_the_new_protocol",
        ),
        tried=(HISTORIES,),
    ),
    Break(
        name="members of other protocols take part",
        claim="members of a generation speak its protocol",
        file=f"{PROTOCOL}/membership.py",
        find=("            if reason:\n                found.append(MemberRefusal(member.id, reason))"),
        instead=(
            "            if reason and member.cluster != self.cluster:\n"
            "                found.append(MemberRefusal(member.id, reason))"
        ),
        noticed_by=(HISTORIES,),
    ),
    Break(
        name="members that join are forgotten",
        claim="a member that joins gets a part",
        file=f"{PROTOCOL}/assign.py",
        find="        drained = open_epochs == 0 or (not patient and now - self._since >= DRAIN_MS)",
        instead="        drained = False",
        noticed_by=(HISTORIES,),
    ),
    Break(
        name="who asks to leave is released at once",
        claim="a member leaves when no epoch needs it",
        file=f"{PROTOCOL}/withdraw.py",
        find="if m not in present and self.phases.get(m)",
        instead="if self.phases.get(m)",
        noticed_by=(
            HISTORIES,
            "tests/protocol/test_assignment.py::test_a_server_is_released_once_when_the_record_is_without_it",
        ),
    ),
    Break(
        name="silence is borne for ever",
        claim="a pool goes on without a member that hangs",
        file=f"{PROTOCOL}/failure_detector.py",
        find="        return self.silence(now) > self._quiet_ms << min(self.silences, MOST_DOUBLINGS)",
        instead="        return False",
        noticed_by=(
            HISTORIES,
            "tests/protocol/test_stuck_pools.py::test_a_server_that_says_nothing_is_left_out",
        ),
    ),
    Break(
        name="a failed attempt is not repeated",
        claim="what fails is tried again",
        file=f"{PROTOCOL}/failure_detector.py",
        find="        return self._retry_at is not None and self._retry_at <= now",
        instead="        return False",
        noticed_by=(
            HISTORIES,
            "tests/protocol/test_stuck_pools.py::test_what_failed_is_tried_again_long_before_silence_is_noticed",
        ),
    ),
    Break(
        name="commits do not wait for names",
        claim="no commit follows one with other names before that is published",
        file=f"{PROTOCOL}/naming.py",
        find=("        if self.unpublished is not None:\n            return []\n        turns"),
        instead="        turns",
        noticed_by=(
            "tests/protocol/test_naming.py::test_commits_end_at_the_first_epoch_with_other_names_until_it_is_published",
        ),
        tried=(HISTORIES,),
    ),
    Break(
        name="planning does not wait for open epochs",
        claim="a plan takes all that came while two epochs were open",
        file=f"{PROTOCOL}/coordinator.py",
        find="not self.epochs.staffed or open_epochs >= MAX_OPEN or self._now",
        instead="not self.epochs.staffed or self._now",
        noticed_by=(
            "tests/protocol/test_coordinator.py::test_planning_waits_while_two_epochs_are_open_and_then_takes_all_that_came",
        ),
        tried=(HISTORIES,),
    ),
    Break(
        name="a view that fails is never set aside",
        claim="a view that cannot be computed does not hold its pool",
        file=f"{PROTOCOL}/amending.py",
        find="if len(attempts) >= BLAMED_AFTER]",
        instead="if len(attempts) < 0]",
        noticed_by=(
            "tests/protocol/test_amending.py::test_a_view_that_always_fails_is_set_aside_and_epochs_go_on",
            "tests/cluster/test_process_faults.py::test_a_view_that_cannot_be_computed_does_not_hold_its_pool",
        ),
    ),
    Break(
        name="a full disk is blamed on a view",
        claim="a failure of the machine is no failure of a view",
        file="viewserver/belvedere/engine/exchange.py",
        find="isinstance(cause, (BelvedereError, OSError, MemoryError))",
        instead="isinstance(cause, BelvedereError)",
        noticed_by=("tests/embedded/test_failed_views.py::test_a_failure_of_the_machine_is_no_failure_of_a_view",),
    ),
    Break(
        name="stale rows go to who has read later",
        claim="a session never goes back, also not to the last good rows of a failed view",
        file="viewserver/belvedere/model/session.py",
        find="        self._seen = max(self._seen, self._database.known_epoch)\n",
        instead="",
        noticed_by=(
            "tests/embedded/test_failed_views.py::test_a_session_gets_no_stale_rows_once_it_has_read_or_written_later",
            "tests/cluster/test_stale_rows.py::test_a_session_gets_no_stale_rows_once_it_has_read_or_written_later",
        ),
    ),
    Break(
        name="the engine changes while epochs are open",
        claim="an epoch is repeated with the engine that it was planned for",
        file=f"{PROTOCOL}/coordinator.py",
        find="engine = wanted.engine if open_epochs == 0 and not planned else present_engine or wanted.engine",
        instead="engine = wanted.engine",
        noticed_by=(
            "tests/protocol/test_engine_versions.py"
            "::test_an_upgrade_of_the_engine_with_an_epoch_open_does_not_hold_up_the_pool",
        ),
    ),
    Break(
        name="document of a repair not read before it is planned",
        claim="a plan names only what is there",
        file=f"{PROTOCOL}/repairing.py",
        find="if answer.data is None or wire.digest(answer.data) != event.repair.digest:",
        instead="if False:",
        noticed_by=(f"{REPAIRING}::test_a_document_that_is_missing_or_damaged_is_refused_and_has_to_be_made_again",),
    ),
    Break(
        name="repair planned while what it mends is being built",
        claim="no build takes half of a repair",
        file=f"{PROTOCOL}/repairing.py",
        find="return bool(set(self._queue[0].offered.waits_for) & set(building))",
        instead="return False",
        noticed_by=(f"{REPAIRING}::test_it_waits_for_builds_that_read_the_tables_and_for_no_others",),
    ),
    Break(
        name="repair of another catalog planned",
        claim="rows are computed for the catalog and the engine of the plan",
        file=f"{PROTOCOL}/repairing.py",
        find="if (o.offered.catalog, o.offered.engine) != (catalog, engine)]",
        instead="if o.offered.catalog != catalog]",
        noticed_by=(f"{REPAIRING}::test_another_catalog_or_engine_makes_it_worthless",),
    ),
    Break(
        name="document of an offered repair collected",
        claim="the document of a repair stays until its epoch is committed",
        file=f"{PROTOCOL}/gc_documents.py",
        find="elif prefix == REPAIRS and name not in repairs:",
        instead="elif prefix == REPAIRS:",
        noticed_by=(f"{REPAIRING}::test_a_document_goes_when_nobody_can_want_it_any_more",),
    ),
    Break(
        name="row replaced that changed since",
        claim="a repair overwrites nothing that was written after it was computed",
        file="viewserver/belvedere/engine/shard.py",
        find="free = ~(changed | self._ledger.changed_since(rows.table, rows.ids, since))",
        instead="free = ~self._ledger.changed_since(rows.table, rows.ids, since)",
        noticed_by=(f"{OWNERS}::test_the_same_value_that_came_back_is_another_version",),
    ),
    Break(
        name="change that is on its way to the store overlooked by a repair",
        claim="a repair overwrites nothing that was written after it was computed",
        file="viewserver/belvedere/engine/shard.py",
        find="free = ~(changed | self._ledger.changed_since(rows.table, rows.ids, since))",
        instead="free = ~changed",
        noticed_by=(f"{OWNERS}::test_a_change_that_the_store_does_not_have_yet_counts",),
        tried=(f"{OWNERS}::test_a_row_that_changed_since_is_left_as_it_is",),
    ),
]
