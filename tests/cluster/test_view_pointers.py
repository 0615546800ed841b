"""Readers that know nothing of catalogs find the version of a view that is served."""

from __future__ import annotations

from belvedere.cluster.roles.view_pointers import ViewPointers
from belvedere.cluster.transport import calls
from tests.cluster.memory_pool import Pool
from tests.cluster.real import until


def pointers(pool: Pool) -> dict[str, bytes | None]:
    return {name: pool.store.get_document(name) for name in pool.store.list_documents("views/")}


def change(pool: Pool, statement: str, ticket: str) -> None:
    calls.decode(pool.call(calls.DDL, calls.encode(calls.DdlCall(ticket, statement))), calls.Taken)


def test_a_pointer_follows_the_version_that_is_served() -> None:
    pool = Pool()
    pool.whole()
    try:
        pool.define()
        until(lambda: pointers(pool) == {"views/spend": b"1"}, 20.0, "the first version")
        change(pool, "CREATE OR REPLACE MATERIALIZED VIEW spend AS SELECT customer, sum(total) AS t FROM orders"
                     " GROUP BY customer", "t1")  # fmt: skip
        until(lambda: pointers(pool) == {"views/spend": b"2"}, 20.0, "the second version")
        change(pool, "DROP MATERIALIZED VIEW spend", "t2")
        until(lambda: pointers(pool) == {}, 20.0, "a view that is dropped")
    finally:
        pool.stop()


def test_what_a_leader_of_before_wrote_late_is_mended() -> None:
    pool = Pool()
    pool.whole()
    try:
        pool.define()
        until(lambda: pointers(pool) == {"views/spend": b"1"}, 20.0, "a version")
        newest = pool.committed()
        leader = ViewPointers(pool.store)
        write = leader.due(newest)
        assert write is not None
        write()
        assert leader.due(newest) is None
        pool.store.put_document("views/spend", b"7")
        leader.look_again()
        again = leader.due(newest)
        assert again is not None
        again()
        assert pointers(pool) == {"views/spend": b"1"}
    finally:
        pool.stop()
