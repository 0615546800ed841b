"""A view whose expressions cannot be computed is refused when it is created; the database goes on."""

from __future__ import annotations

import pytest

import belvedere
from belvedere.engine.expr.functions import FUNCTIONS
from belvedere.errors import Defect

TABLE = "CREATE TABLE t (id BIGINT PRIMARY KEY, s STRING, k INT)"
PLACES = {
    "projection": "SELECT id, {} AS x FROM t",
    "selection": "SELECT id FROM t WHERE {} = 'X'",
    "behind a selection that no zero passes": "SELECT k, max({}) AS x FROM t WHERE id > 5 GROUP BY k",
    "residual": "SELECT a.id FROM t AS a JOIN t AS b ON a.k = b.id AND upper(concat(a.s, b.s)) = 'XX'",
    "having": "SELECT k FROM t GROUP BY k HAVING upper(max(s)) = 'X'",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_defect_refuses_the_statement_and_not_the_database(tmp_path, monkeypatch, place):
    def broken(*_):
        raise TypeError("no such kernel")

    create = f"CREATE MATERIALIZED VIEW v AS {PLACES[place].format('upper(s)')}"
    with belvedere.open(tmp_path) as db:
        db.execute(TABLE)
        db.put("t", {"id": 9, "s": "x", "k": 9})
        monkeypatch.setitem(FUNCTIONS, "upper", broken)
        with pytest.raises(
            Defect, match=r"view 'v' cannot be computed.* TypeError: no such kernel; nothing was changed"
        ):
            db.execute(create)
        db.wait(db.put("t", {"id": 10, "s": "x", "k": 9}))
        monkeypatch.undo()
        db.execute(create)
        assert db.scan("v").num_rows > 0
    with belvedere.open(tmp_path) as db:
        assert list(db.catalog.views) == ["v"]
