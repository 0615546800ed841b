"""Breaks of docs/design/hbase.md and hbase-log.md: what the log says counts once and in its order, deletes mask as
HBase's do, rows that were there are all loaded, versions are never mistaken, users' tables stay as they are."""

from __future__ import annotations

from tests.teeth.breaks import Break

HBASE = "viewserver/belvedere/backend/hbase"
KERNELS = "viewserver/belvedere/engine/state/kernels"
TESTS = "tests/backend/hbase"

BREAKS = [
    # --- decoding
    Break(
        name="a delete of a family's version masks what is older",
        claim="deletes of HBase mean what they mean there",
        file=f"{KERNELS}/wal.py",
        find="    if type in (12, 14):\n        return 1\n    if type in (8, 10):",
        instead="    if type in (10, 12, 14):\n        return 1\n    if type == 8:",
        noticed_by=(f"{TESTS}/test_wal.py::test_every_cell_of_every_entry_is_found_in_its_region",),
    ),
    Break(
        name="cells of different timestamps are one change",
        claim="a change of HBase's log has the timestamp of its cells",
        file=f"{KERNELS}/wal.py",
        find="                and cells[i, TS] == cells[open, TS]\n",
        instead="",
        noticed_by=(f"{TESTS}/test_wal.py::test_every_cell_of_every_entry_is_found_in_its_region",),
    ),
    Break(
        name="a delete of a family misses its last column",
        claim="deletes of HBase mean what they mean there",
        file=f"{KERNELS}/wal.py",
        find="                    if families[j] == families[c]:",
        instead="                    if families[j] == families[c] and j < columns - 1:",
        noticed_by=(f"{TESTS}/test_wal.py::test_a_delete_of_a_row_is_one_change",),
    ),
    Break(
        name="numbers of HBase have no sign",
        claim="cells are read as `Bytes` writes them",
        file=f"{KERNELS}/wal.py",
        find="            out[i] = (value << shift) >> shift",
        instead="            out[i] = value",
        noticed_by=(f"{TESTS}/test_encodings.py::test_numbers_as_hbase_writes_them",),
    ),
    Break(
        name="a row key with another form is taken for the same",
        claim="two row keys of HBase are never one row",
        file=f"{HBASE}/row_keys.py",
        find="    left.require(np.asarray(pc.equal(again, texts.data)).astype(np.bool_) | ~left.sound)\n",
        instead="",
        noticed_by=(f"{TESTS}/test_encodings.py::test_what_could_be_written_in_another_way_is_no_key",),
    ),
    # --- which entries count
    Break(
        name="the entry before the first that counts does so, too",
        claim="entries of HBase's log count from where a table is followed",
        file=f"{HBASE}/wal.py",
        find='np.searchsorted(self.seqs, seq, "right")',
        instead='np.searchsorted(self.seqs, seq, "left")',
        noticed_by=(f"{TESTS}/test_sink.py::test_listed_regions_count_from_where_they_were_opened",),
    ),
    Break(
        name="regions of a namesake count",
        claim="entries of a table that was dropped do not count",
        file=f"{HBASE}/followed.py",
        find="        if not ours:\n            return None\n",
        instead="",
        noticed_by=(f"{TESTS}/test_sink.py::test_other_tables_and_regions_of_a_namesake_are_left_out",),
    ),
    Break(
        name="only parents end, and not what was before them",
        claim="a region that was split twice ends though nothing of it came",
        file=f"{HBASE}/followed.py",
        find="            waiting += known.parents\n",
        instead="",
        noticed_by=(
            f"{TESTS}/test_sink.py::test_daughters_count_and_end_their_ancestors_also_those_that_never_had_an_entry",
        ),
    ),
    Break(
        name="a daughter is written down without her sisters",
        claim="lineage outlives what HBase forgets",
        file=f"{HBASE}/followed.py",
        find="        for encoded in births:\n            self._adopt(table, encoded, births)",
        instead="        for encoded in list(births)[:1]:\n            self._adopt(table, encoded, births)",
        noticed_by=(f"{TESTS}/test_sink.py::test_daughters_are_known_before_hbase_forgets_their_parents",),
    ),
    Break(
        name="entries are answered before the regions are listed",
        claim="nothing of HBase's log is lost when a table begins to be followed",
        file=f"{HBASE}/sink.py",
        find='            raise StoreUnavailable(f"hbase table {str(table.origin)!r}: its regions are not listed yet")',
        instead="            return None",
        noticed_by=(f"{TESTS}/test_sink.py::test_nothing_is_answered_before_the_regions_are_listed",),
    ),
    Break(
        name="a table is known as wide as it was",
        claim="columns that are added later lose nothing",
        file=f"{HBASE}/followed.py",
        find="                if name in widths and len(table.definition.columns) >= widths[name]",
        instead="                if name in widths",
        noticed_by=(f"{TESTS}/test_widening.py::test_sinks_that_knew_the_narrow_table_find_the_wide_one",),
    ),
    Break(
        name="a request of HBase's log is answered whatever happened to it",
        claim="what is answered to HBase is durable in INPUT",
        file=f"{HBASE}/sink_server.py",
        find="                if self._closed.wait(pause.next()) or _gone(connection):\n"
        "                    raise EOFError from error\n",
        instead="                return\n",
        noticed_by=(f"{TESTS}/test_sink.py::test_a_request_is_answered_when_it_is_durable_and_delayed_until_then",),
    ),
    Break(
        name="the quota of INPUT holds up nobody",
        claim="above INPUT's quota the log stays in HBase",
        file=f"{HBASE}/sink.py",
        find="    def _receive(self, request: memoryview, block: memoryview) -> None:\n        self._check_quota()\n",
        instead="    def _receive(self, request: memoryview, block: memoryview) -> None:\n",
        noticed_by=(f"{TESTS}/test_log.py::test_answers_wait_while_input_is_over_its_quota",),
    ),
    Break(
        name="the peer keeps no order",
        claim="the order of a row survives moves, splits and crashes",
        file=f"{HBASE}/descriptors.py",
        find="    serial: bool = True",
        instead="    serial: bool = False",
        noticed_by=(f"{TESTS}/test_admin.py::test_peers_are_added_updated_listed_and_removed",),
        tried=(f"{TESTS}/test_log.py::test_regions_that_move_split_and_merge_lose_and_repeat_nothing",),
    ),
    # --- masks
    Break(
        name="a put at the time of its delete lives",
        claim="a delete of HBase hides the put of its millisecond",
        file=f"{KERNELS}/cells.py",
        find="    if t <= mask:\n        return 0, False, put == MIN and kind == PUT",
        instead="    if t < mask:\n        return 0, False, put == MIN and kind == PUT",
        noticed_by=(f"{TESTS}/test_rules.py::test_random_histories_with_flushes_and_major_compactions",),
    ),
    Break(
        name="a put below a mask is not read again",
        claim="what a compaction revived is found by a reload",
        file=f"{KERNELS}/cells.py",
        find="        return 0, False, put == MIN and kind == PUT",
        instead="        return 0, False, False",
        noticed_by=(f"{TESTS}/test_rules.py::test_random_histories_with_flushes_and_major_compactions",),
    ),
    Break(
        name="the deleted version was the only one",
        claim="a delete of a version that uncovers another one is a cell that is open",
        file=f"{KERNELS}/cells.py",
        find="            nodes[node, 1] |= 1\n            side[k, at] = MIN\n            return OPEN, True, False",
        instead="            side[k, at] = MIN\n            return CLEAR, True, False",
        noticed_by=(f"{TESTS}/test_rules.py::test_random_histories_with_flushes_and_major_compactions",),
    ),
    # --- loads and corrections
    Break(
        name="rows that were there are loaded from the second on",
        claim="all rows that were there are loaded",
        file=f"{HBASE}/loading.py",
        find='        start = bytes.fromhex(range.after) + b"\\0" if range.after else bytes.fromhex(range.start)',
        instead='        start = bytes.fromhex(range.after or range.start) + b"\\0"',
        noticed_by=(f"{TESTS}/test_loading.py::test_rows_that_were_there_and_those_that_are_written_meanwhile",),
        tried=("tests/simulator/followed/test_followed.py::test_histories",),
    ),
    Break(
        name="masked versions of a scan are sent",
        claim="a load says no more of a row than the log did",
        file=f"{HBASE}/loading.py",
        find="        cells = _without_masked_versions(cells)\n",
        instead="",
        noticed_by=(f"{TESTS}/test_loading.py::test_rows_that_were_there_and_those_that_are_written_meanwhile",),
        tried=("tests/simulator/followed/test_followed.py::test_histories",),
    ),
    Break(
        name="views are built while rows are loaded",
        claim="a view never shows a part of the rows that were there",
        file=f"{HBASE}/log.py",
        find="        return any(is_attempt(region.encoded) for region in self._book.regions())",
        instead="        return False",
        noticed_by=(f"{TESTS}/test_loading.py::test_a_load_counts_until_it_is_committed",),
    ),
    Break(
        name="corrections do not wait for the log",
        claim="a correction never takes back what the log is about to bring",
        file=f"{HBASE}/reloading.py",
        find="        self._fence.passed()\n",
        instead="",
        noticed_by=(
            "tests/simulator/followed/test_followed.py::test_a_known_bug_is_caught[a reload does not wait for the log]",
        ),
    ),
    # --- versions and keys
    Break(
        name="the fifth version is taken for the oldest",
        claim="a read further back than HBase keeps is refused",
        file=f"{HBASE}/packing.py",
        find="    late = seen >= VERSIONS\n",
        instead="    late = seen > VERSIONS\n",
        noticed_by=(
            f"{TESTS}/test_store.py::test_history_of_a_view_is_right_at_every_epoch",
            f"{TESTS}/test_store.py::test_state_is_right_whatever_hbase_does",
        ),
    ),
    Break(
        name="the image before an epoch is that of the next",
        claim="time travel is exact over HBase",
        file=f"{HBASE}/versioned.py",
        find="        start = word(below)\n",
        instead="        start = word(below + 1)\n",
        noticed_by=(f"{TESTS}/test_store.py::test_history_of_a_view_is_right_at_every_epoch",),
    ),
    Break(
        name="a document is written at the time of this clock",
        claim="documents are replaced whatever clocks say",
        file=f"{HBASE}/documents.py",
        find="            if there == stamp:\n                return\n",
        instead="            return\n",
        noticed_by=(f"{TESTS}/test_store.py::test_a_document_is_replaced_whatever_the_clocks_say",),
    ),
    Break(
        name="buckets of state follow each other in another order",
        claim="a view server that takes buckets over reads all of their rows",
        file=f"{HBASE}/layout.py",
        find="    out[:, 1 + TAG_BYTES] = bucket % SLOT_BUCKETS\n",
        instead="    out[:, 1 + TAG_BYTES] = SLOT_BUCKETS - 1 - bucket % SLOT_BUCKETS\n",
        noticed_by=(f"{TESTS}/test_store.py::test_rows_of_a_table_and_a_bucket_stand_together_in_their_order",),
    ),
    # --- what belongs to users
    Break(
        name="the scope is set without permission",
        claim="users' tables are changed only as they permit",
        file=f"{HBASE}/admin.py",
        find="        if wanted and not permitted:\n",
        instead="        if False:\n",
        noticed_by=(f"{TESTS}/test_admin.py::test_scope_is_set_with_permission_only",),
    ),
    Break(
        name="the schema of any table may be changed",
        claim="a user's table is never created, altered, disabled or dropped",
        file=f"{HBASE}/admin.py",
        find="        if table.namespace != self.namespace:\n",
        instead="        if False:\n",
        noticed_by=(f"{TESTS}/test_admin.py::test_a_table_of_users_is_never_touched",),
    ),
]
