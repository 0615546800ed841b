"""A database with a view that this version refuses opens, without that view and those over it, and says so."""

from __future__ import annotations

import pytest

import belvedere
from belvedere.errors import CatalogError, Defect, SqlError
from belvedere.model import ddl

TABLE = "CREATE TABLE t (id BIGINT PRIMARY KEY, s STRING)"
OLD = "CREATE MATERIALIZED VIEW old AS SELECT upper(s) AS u, count(*) AS n FROM t GROUP BY upper(s)"
OVER = "CREATE MATERIALIZED VIEW over AS SELECT count(*) AS groups FROM old"
FINE = "CREATE MATERIALIZED VIEW fine AS SELECT s, count(*) AS n FROM t GROUP BY s"


def rows(db: belvedere.Database, view: str) -> list[dict[str, object]]:
    return sorted(db.scan(view).to_pylist(), key=str)


def write(db: belvedere.Database, *ids: int) -> None:
    db.wait(db.put("t", [{"id": i, "s": "ab"[i % 2]} for i in ids]))


@pytest.fixture
def newer(monkeypatch):
    """A version whose grammar knows no upper."""
    read = ddl.bind_query

    def bind(sql, catalog):
        if "upper" in sql:
            raise SqlError("no function upper", line=1, column=8, hint="use lower")
        return read(sql, catalog)

    def change():
        monkeypatch.setattr(ddl, "bind_query", bind)

    return change


@pytest.mark.parametrize("stored", ["log", "snapshot", "both"])
def test_a_database_with_a_view_that_is_refused_opens_without_it(tmp_path, newer, stored):
    options = {"snapshot": stored != "log"}
    with belvedere.open(tmp_path, **options) as db:
        db.execute(TABLE)
        write(db, 1, 2)
        db.execute(OLD)
        db.execute(FINE)
        if stored == "both":  # `old` is in the snapshot, `over` in the log
            db.close()
            db = belvedere.open(tmp_path, snapshot=False)
        db.execute(OVER)
        write(db, 3)
        db.close()
    newer()
    for opening in range(2):
        with belvedere.open(tmp_path, **options) as db:
            assert list(db.catalog.views) == ["fine"]
            problems = {p.split("'")[1]: p for p in db.status()["problems"]}
            assert set(problems) == {"old", "over"}
            assert "no function upper" in problems["old"] and "SELECT upper(s) AS u" in problems["old"]
            assert "create it again" in problems["old"] and "or drop it" in problems["old"]
            with pytest.raises(CatalogError, match="old"):
                db.scan("old")
            write(db, 4 + opening)
            assert sum(r["n"] for r in rows(db, "fine")) == 4 + opening
            assert db.verify().ok
            with belvedere.open(tmp_path, read_only=True) as reader:
                assert list(reader.catalog.views) == ["fine"]
                assert rows(reader, "fine") == rows(db, "fine")
    with belvedere.open(tmp_path, **options) as db:
        db.execute(OLD.replace("upper", "lower"))
        db.execute("DROP MATERIALIZED VIEW Over")  # names are compared without case
        assert db.status()["problems"] == []
        assert rows(db, "old") == [{"u": "a", "n": 2}, {"u": "b", "n": 3}]
    with belvedere.open(tmp_path, **options) as db:
        assert set(db.catalog.views) == {"fine", "old"}
        assert db.status()["problems"] == []
        assert db.verify().ok


def test_a_build_under_way_whose_view_is_refused_ends(tmp_path, newer):
    with belvedere.open(tmp_path, snapshot=False) as db:
        db.execute(TABLE)
        write(db, *range(100))
        db._runtime.builds.advance = lambda: db._runtime.stop("scripted")  # dies before the view is complete
        with pytest.raises(belvedere.errors.Closed):
            db.execute(OLD)
    newer()
    with belvedere.open(tmp_path) as db:
        write(db, 100)
        assert db.status()["problems"] == [] and not db.catalog.views
        db.execute(FINE)
        assert db.verify().ok
    with belvedere.open(tmp_path) as db:
        assert list(db.catalog.views) == ["fine"]


@pytest.mark.parametrize("moment", ["start", "piece"])
def test_a_defect_in_a_build_ends_the_build_and_not_the_database(tmp_path, monkeypatch, moment):
    from belvedere.engine.build import Build

    with belvedere.open(tmp_path) as db:
        db.execute(TABLE)
        write(db, 1, 2, 3)
        db.execute(FINE)
        method = {"start": "_start", "piece": "_run"}[moment]

        def broken(*_):
            raise TypeError("no such operator")

        monkeypatch.setattr(Build, method, broken)
        with pytest.raises(Defect, match="view 'old' could not be built: TypeError: no such operator"):
            db.execute(OLD)
        write(db, 4)
        monkeypatch.undo()
        db.execute(OLD)
        assert db.verify().ok
    with belvedere.open(tmp_path) as db:
        assert set(db.catalog.views) == {"fine", "old"}
        assert db.verify().ok
