"""Breaks of the engine on a share of the buckets: state that is undone, lost, built and written."""

from __future__ import annotations

from tests.teeth.breaks import HISTORIES, Break

ENGINE = "viewserver/belvedere/engine"

BREAKS = [
    Break(
        name="keys of the running epoch stay",
        claim="the running epoch is undone",
        file=f"{ENGINE}/shard.py",
        find="                self._tables[name].evict(self._tables[name].slots_of(change.mentioned))",
        instead="                self._tables[name].slots_of(change.mentioned)",
        noticed_by=(HISTORIES,),
    ),
    Break(
        name="keys of finished epochs stay",
        claim="epochs that are not committed are undone",
        file=f"{ENGINE}/shard.py",
        find=("        for one in undone:\n            self._forget(one.touched)"),
        instead=("        for one in undone:\n            del one"),
        noticed_by=(HISTORIES,),
    ),
    Break(
        name="added columns are lost",
        claim="a column that is added is there",
        file=f"{ENGINE}/shard.py",
        find="                known.add_columns(table.columns[len(known.table.columns) :])",
        instead="                known.table = table",
        noticed_by=(HISTORIES,),
    ),
    Break(
        name="buckets that were lost stay in the cache",
        claim="whoever loses a bucket forgets it",
        file=f"{ENGINE}/shard.py",
        find=("        if not lost.any():\n            return"),
        instead=("        if len(lost):\n            return"),
        noticed_by=(range(190, 290), "tests/engine/shard/test_shard.py::test_one_view_on_any_number_of_servers"),
    ),
    Break(
        name="a stage that failed leaves its state",
        claim="after a failure state is made anew",
        file=f"{ENGINE}/shard.py",
        find=(
            "            out = self._run(running, stage)\n"
            "        except BaseException:\n"
            "            self._broken = True"
        ),
        instead=(
            "            out = self._run(running, stage)\n"
            "        except BaseException:\n"
            "            self._broken = False"
        ),
        noticed_by=("tests/engine/shard/test_limits.py::test_a_stage_that_failed_anywhere_leaves_no_trace",),
        tried=(HISTORIES,),
    ),
    Break(
        name="writes that are not durable are not looked at",
        claim="loads see what the store may not have yet",
        file=f"{ENGINE}/ledger.py",
        find=("        late = self._late(table)\n        if not late:"),
        instead=("        late = self._late(table)\n        if late is not None:"),
        noticed_by=(HISTORIES,),
    ),
    Break(
        name="undone writes are still seen",
        claim="writes of an attempt that failed are forgotten",
        file=f"{ENGINE}/ledger.py",
        find=("        self.open = [one for one in self.open if one.epoch <= committed]\n        return gone"),
        instead="        return gone",
        noticed_by=(HISTORIES,),
    ),
    Break(
        name="writes forgotten before they are durable",
        claim="writes are seen until the store has them",
        file=f"{ENGINE}/ledger.py",
        find=("            one.committed |= one.epoch <= epoch\n        self._tidy()"),
        instead=(
            "            one.committed |= one.epoch <= epoch\n"
            "            one.persisted |= one.committed\n"
            "        self._tidy()"
        ),
        noticed_by=("tests/engine/shard/test_ledger.py::test_writes_are_seen_until_they_are_durable",),
        tried=(HISTORIES,),
    ),
    Break(
        name="a build takes changed rows twice",
        claim="a row that the epoch changed is taken once into a build",
        file=f"{ENGINE}/slices.py",
        find="            fresh = known.find(ids) < 0",
        instead="            fresh = known.find(ids) < 1 << 62",
        noticed_by=(HISTORIES,),
    ),
    Break(
        name="a build reads buckets of others",
        claim="a server builds its own buckets",
        file=f"{ENGINE}/slices.py",
        find="self._ledger.scan(table, self._first, self._stop, self._mine)",
        instead="self._ledger.scan(table, self._first, self._stop, self._mine | True)",
        noticed_by=(HISTORIES,),
    ),
    Break(
        name="a build misses changes of what is built",
        claim="changes of buckets that are built reach the new view",
        file=f"{ENGINE}/slices.py",
        find=(
            '        """The share of a base table; `changes` is what it emits in this epoch."""\n'
            "        for delta in changes:\n"
            "            yield delta.filter(buckets_of(delta.id) < self._first)"
        ),
        instead=(
            '        """The share of a base table; `changes` is what it emits in this epoch."""\n'
            "        for delta in changes:\n"
            "            yield delta.filter(buckets_of(delta.id) < 0)"
        ),
        noticed_by=(HISTORIES,),
    ),
]
