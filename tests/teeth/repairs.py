"""Breaks of verification, of repair of an embedded database, and of its builds that go on after a crash."""

from __future__ import annotations

from tests.teeth.breaks import Break

EMBEDDED = "viewserver/belvedere/embedded"

BREAKS = [
    Break(
        name="state with other bytes passes for right",
        claim="verification can be believed: one bit is enough to differ",
        file="viewserver/belvedere/cluster/roles/verifying.py",
        find="            wrong = (_digests(values)[there] != wanted.digests[at[there]]).any(axis=1)\n",
        instead="            wrong = np.zeros(int(there.sum()), np.bool_)\n",
        noticed_by=("tests/cluster/test_verifying.py::test_every_row_of_every_table_counts",),
    ),
    Break(
        name="what a table of HBase lacks passes for right",
        claim="verification can be believed: lost deletes are found",
        file="viewserver/belvedere/backend/hbase/images.py",
        find="            differ |= mine != theirs\n",
        instead="            differ |= (mine != theirs) & (theirs != _EMPTY)\n",
        noticed_by=("tests/backend/hbase/test_reload.py::test_a_comparison_counts_what_is_wrong_and_corrects_nothing",),
    ),
    Break(
        name="a replay does not repair",
        claim="an embedded repair happens once, also across a crash",
        file=f"{EMBEDDED}/repairs.py",
        find="        live = builds.announce is not None\n",
        instead="        live = builds.announce is not None\n"
        "        if not live:\n"
        "            return runtime.publish(epoch)\n",
        noticed_by=("tests/embedded/test_repair.py::test_a_crash_in_the_middle_leaves_all_or_nothing",),
    ),
    Break(
        name="a reading process goes on with what it has read before a repair",
        claim="an embedded repair reaches processes that read the directory",
        file=f"{EMBEDDED}/reader.py",
        find='change.meta.get("reread", 0) > self._loaded',
        instead='change.meta.get("reread", 0) < 0',
        noticed_by=("tests/embedded/test_repair.py::test_damage_in_the_changelog_alone_is_found_and_left_behind",),
    ),
    Break(
        name="a repair leaves the rows of views as they are",
        claim="an embedded repair reaches reading processes and the reopened database",
        file=f"{EMBEDDED}/repairs.py",
        find="        runtime.commit(epoch, deltas, before_publishing=before_publishing)\n",
        instead="        runtime.commit(epoch, {}, before_publishing=before_publishing)\n",
        noticed_by=(
            "tests/embedded/test_repair.py::test_a_reading_process_and_a_reopened_database_agree_after_a_repair",
        ),
    ),
    Break(
        name="a build begins again after a crash",
        claim="an embedded build goes on after a crash",
        file=f"{EMBEDDED}/builds.py",
        find="        if dump is None or not self._load(operation, dump, snapshot, state):\n",
        instead="        if True:\n",
        noticed_by=("tests/embedded/test_builds.py::test_a_build_that_was_killed_goes_on_where_it_was",),
    ),
    Break(
        name="a build that goes on leaves out a row",
        claim="an embedded build goes on after a crash where it was",
        file="viewserver/belvedere/engine/build.py",
        find="np.iinfo(np.int64).max if scanned is None else scanned\n",
        instead="np.iinfo(np.int64).max if scanned is None else scanned + 1\n",
        noticed_by=("tests/embedded/test_builds.py::test_power_cuts_at_any_moment_of_a_build",),
    ),
]
