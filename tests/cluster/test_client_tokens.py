"""Tokens of a cluster: as text, and as proof of writes to sources that come and go."""

from __future__ import annotations

import dataclasses
from decimal import Decimal

import pytest

from belvedere.backend.seam import SourceInfo
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.client.token import ClusterToken
from belvedere.errors import NotYet
from belvedere.protocol.exactly_once import Seq, SourceId
from belvedere.protocol.row_marks import RowMark
from tests.cluster.client_pool import ORDERS, SPEND, create, order
from tests.cluster.fake_pool import FakePool


@pytest.mark.parametrize("text", ["", "x", "e", "e1,", "e1,a", "e1,:3", "e1,a:b", "1.5"])
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no token"):
        ClusterToken.parse(text)


def test_tokens_as_text() -> None:
    token = ClusterToken.of({"b,c:d/é": 5, "a": 7})  # type: ignore[dict-item]
    assert ClusterToken.parse(str(token)) == token and ClusterToken.parse(token) is token
    assert ClusterToken.parse(17) == ClusterToken.parse("e17") == ClusterToken(17)
    both = ClusterToken.joined([token, ClusterToken.of({"a": 9}), ClusterToken(4)])  # type: ignore[dict-item]
    assert both == ClusterToken(4, (("a", 9), ("b,c:d/é", 5)))  # type: ignore[arg-type]


def test_a_token_of_rows_becomes_an_epoch_once_it_was_read() -> None:
    mark = RowMark("orders", (1, 2), 3).source
    token = ClusterToken.of({mark: Seq(5), SourceId("a"): Seq(7)})
    assert ClusterToken.parse(str(token)) == token
    assert token.settled(40) == ClusterToken(40, ((SourceId("a"), Seq(7)),))
    logs = ClusterToken.of({SourceId("a"): Seq(7)})
    assert logs.settled(40) is logs


def test_a_source_that_ended_and_is_forgotten_counts_as_reached(pool: FakePool, db: ClusterDatabase) -> None:
    create(pool, db, ORDERS, SPEND)
    token = db.put("orders", order(1, 7, "1"))
    pool.step()
    pool.positions.clear()
    pool.step()
    with pytest.raises(NotYet):
        db.wait(token, timeout=0.01)
    (source,) = pool.store.sources()
    pool.store.list_source(dataclasses.replace(source, last=1))
    pool.store.forget_sources([source.id])
    db.wait(token, timeout=5)


def test_a_source_that_came_and_went_since_the_last_epoch_that_is_known(pool: FakePool) -> None:
    """A range was split and merged while a client was idle: what it knows has no position, and the store no source."""
    with pool.connect(max_age=3600) as idle, pool.connect() as db:
        create(pool, db, ORDERS, SPEND)
        db.put("orders", order(1, 7, "1"))
        before = pool.step().epoch
        assert idle.get("spend", 7, after=before)["n"] == 1
        with_daughter, token = _written_to_a_daughter(pool, db)
        epochs = [pool.step().epoch for _ in range(3)]
        assert idle.epochs.known.epoch == before
        assert idle.get("spend", 7, after=token)["n"] == 2
        assert epochs[-1] >= idle.epochs.known.epoch > before
        for client in (idle, db):
            assert client.get("spend", 7, at=token)["n"] == 2
            assert client.epochs.at(token, client.deadline()).epoch == with_daughter


def test_a_source_that_was_never_published_is_in_the_newest_epoch(pool: FakePool, db: ClusterDatabase) -> None:
    create(pool, db, ORDERS, SPEND)
    pool.publishes = False
    _, token = _written_to_a_daughter(pool, db)
    pool.publishes = True
    pool.hub.cut(pool.leader.address)
    with pytest.raises(NotYet):
        db.wait(token, timeout=0.3)  # the store alone does not know
    pool.hub.mend(pool.leader.address)
    last = pool.step().epoch
    db.wait(token)
    assert db.get("spend", 7, at=token)["n"] == 1
    assert db.epochs.at(token, db.deadline()).epoch == last


def _written_to_a_daughter(pool: FakePool, db: ClusterDatabase) -> tuple[int, ClusterToken]:
    """A write to a range that is planned, committed to its end and forgotten; the epoch that has it."""
    db.put("orders", order(2, 7, "1"))
    daughter = SourceId("orders/daughter")
    pool.pending[-1].source, pool.pending[-1].seq = daughter, Seq(1)
    pool.store.list_source(SourceInfo(daughter, "orders", frozenset(), Seq(1), "node"))
    epoch = pool.step().epoch
    del pool.positions[daughter]
    pool.store.forget_sources([daughter])
    return epoch, ClusterToken.of({daughter: Seq(1)})


def test_a_session_reads_its_own_writes_and_hands_over_what_it_saw(pool: FakePool, db: ClusterDatabase) -> None:
    create(pool, db, ORDERS, SPEND)
    with db.session(timeout=0.05) as s:
        s.put("orders", [order(1, 7, "9.50")])
        s.put("orders", [order(2, 8, "1")])
        for read in (lambda: s.get("spend", 7), lambda: s.scan("spend"), s.snapshot):
            with pytest.raises(NotYet):
                read()
        assert db.get("spend", 7) is None  # without a session nothing waits
        pool.step()
        assert s.get("spend", 7) == {"customer": 7, "n": 1, "total": Decimal("9.50")}
        assert s.get("spend", 8) == {"customer": 8, "n": 1, "total": Decimal("1.00")}
        with s.snapshot() as snapshot:
            assert snapshot.get("spend", 8) == {"customer": 8, "n": 1, "total": Decimal("1.00")}
        handed = str(s.token)
    assert ClusterToken.parse(handed).epoch == db.epoch and ClusterToken.parse(handed).positions
    with db.session(after=handed, timeout=1) as other:
        assert other.get("spend", 7) == {"customer": 7, "n": 1, "total": Decimal("9.50")}
