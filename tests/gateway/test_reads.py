"""Reads over HTTP: rows, pages that stay at one epoch, several views at one epoch, snapshots."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from belvedere.errors import EpochExpired, NoSuchResource
from belvedere.gateway import formats, reads
from belvedere.gateway.cursor import Cursor
from belvedere.gateway.snapshots import Snapshots
from tests.gateway.serving import ARROW, NDJSON, Served

ROWS = "/v1/relations/spend/rows"


def read_all(served: Served, path: str, **first: Any) -> tuple[list[dict[str, Any]], set[int]]:
    """All pages, and their epochs."""
    rows, epochs, params = [], set(), first
    while True:
        page = served.get(path, params=params).json()
        rows += page["rows"]
        epochs.add(page["epoch"])
        if page["cursor"] is None:
            return rows, epochs
        params = {"cursor": page["cursor"], "limit": first.get("limit", 1000)}


def test_a_row_is_an_object_by_column_name(served: Served) -> None:
    found = served.get("/v1/relations/spend/row?key=7")
    assert found.json() == {"customer": 7, "n": 10, "total": "95.00"}
    assert found.headers["belvedere-token"].startswith("e")
    assert served.get("/v1/relations/SPEND/row", params={"key": '{"CUSTOMER": 7}'}).json() == found.json()
    assert served.get("/v1/relations/orders/row?key=[7]").json() == {"id": 7, "customer": 7, "total": "9.50"}


def test_a_row_that_is_not_there_is_told_from_a_relation_that_is_not_there(served: Served) -> None:
    absent = served.get("/v1/relations/spend/row?key=999")
    unknown = served.get("/v1/relations/spent/row?key=7")
    assert (absent.status_code, absent.json()["type"].rpartition("/")[2]) == (404, "no-such-row")
    assert (unknown.status_code, unknown.json()["error"]) == (404, "UnknownRelation")
    assert "there is orders, spend" in unknown.json()["detail"]


def test_rows_come_as_json_ndjson_and_arrow(served: Served) -> None:
    expected = served.db.scan("spend")
    lines = served.get(ROWS, headers={"accept": NDJSON["content-type"]})
    assert [json.loads(line) for line in lines.text.splitlines()] == served.get(ROWS).json()["rows"]
    arrow = served.get(ROWS, headers={"accept": ARROW})
    assert pa.ipc.open_stream(arrow.content).read_all() == expected
    one = served.get("/v1/relations/spend/row?key=7", headers={"accept": ARROW})
    assert pa.ipc.open_stream(one.content).read_all() == expected.slice(7, 1)
    assert served.get(ROWS, headers={"accept": "text/html"}).status_code == 406
    assert served.get(ROWS, headers={"accept": f"text/html, {ARROW};q=0.5, */*;q=0.1"}).headers["content-type"] == ARROW


def test_ranges_prefixes_columns_and_directions(served: Served) -> None:
    def customers(**params: Any) -> list[int]:
        return [row["customer"] for row in served.get(ROWS, params=params).json()["rows"]]

    assert customers(start="3", stop="6") == [3, 4, 5]
    assert customers(start="3", stop="6", reverse="true") == [5, 4, 3]
    assert customers(prefix="4") == [4]
    assert served.get(ROWS, params={"columns": "n", "limit": 1}).json()["rows"] == [{"n": 10}]
    assert served.get(ROWS, params={"columns": '["n","customer"]', "limit": 1}).json()["rows"] == [
        {"n": 10, "customer": 0}
    ]


@pytest.mark.parametrize("reverse", ["false", "true"])
def test_pages_of_a_cursor_are_one_answer_at_one_epoch_under_writes(served: Served, reverse: str) -> None:
    expected = served.get(ROWS, params={"reverse": reverse}).json()["rows"]
    first = served.get(ROWS, params={"limit": 4, "reverse": reverse}).json()
    token = served.db.put("orders", [{"id": i, "customer": i % 20, "total": "1.00"} for i in range(1000, 1200)])
    served.db.wait(token)
    rows, epochs = read_all(served, ROWS, cursor=first["cursor"], limit=4)
    assert first["rows"] + rows == expected
    assert epochs == {first["epoch"]}
    assert len(served.get(ROWS).json()["rows"]) == 20


@pytest.mark.parametrize("reverse", ["false", "true"])
def test_pages_of_a_range_end_where_it_ends(served: Served, reverse: str) -> None:
    rows, epochs = read_all(served, ROWS, start="2", stop="9", limit=3, reverse=reverse)
    found = [row["customer"] for row in rows]
    assert found == [2, 3, 4, 5, 6, 7, 8][:: -1 if reverse == "true" else 1]
    assert len(epochs) == 1


@pytest.mark.parametrize("end", [b"", b"\0", b"\xff" * 20, b"zz"])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_cursor_that_was_changed_stays_in_its_range(served: Served, end: bytes, reverse: bool) -> None:
    cursor = served.get(ROWS, params={"limit": 1, "start": "2", "stop": "5"}).json()["cursor"]
    changed = replace(Cursor.parse(cursor, "spend"), end=base64.b64encode(end).decode(), reverse=reverse)
    rows = served.get(ROWS, params={"cursor": changed.text()}).json()["rows"]
    assert {row["customer"] for row in rows} <= {2, 3, 4}


@pytest.mark.parametrize(
    "fields", [{"epoch": True}, {"epoch": "5"}, {"reverse": 1}, {"stale": None}, {"columns": "n"}, {"columns": [1]}]
)
def test_a_cursor_with_fields_of_other_kinds_is_none(served: Served, fields: dict[str, Any]) -> None:
    cursor = Cursor.parse(served.get(ROWS, params={"limit": 1}).json()["cursor"], "spend")
    assert served.get(ROWS, params={"cursor": replace(cursor, **fields).text()}).status_code == 400


def test_a_page_of_few_bytes_goes_on(served: Served) -> None:
    page = served.get("/v1/relations/orders/rows", params={"bytes": 200})
    assert 1 <= len(page.json()["rows"]) < 20
    rows, _ = read_all(served, "/v1/relations/orders/rows", bytes=200)
    assert [row["id"] for row in rows] == list(range(100))
    assert len(served.get("/v1/relations/orders/rows", params={"bytes": 1}).json()["rows"]) == 1


def test_views_whose_key_is_not_shown_have_pages_too(served: Served) -> None:
    served.db.execute("CREATE MATERIALIZED VIEW totals AS SELECT total FROM orders")
    rows, epochs = read_all(served, "/v1/relations/totals/rows", limit=7)
    assert (len(rows), len(epochs)) == (100, 1)
    assert served.get("/v1/relations/totals").json()["key_columns"][0]["name"] not in rows[0]


def test_cursors_that_are_none_are_refused(served: Served) -> None:
    cursor = served.get(ROWS, params={"limit": 1}).json()["cursor"]
    for wrong in ("x", cursor[:-4], cursor[::-1], "AAAA", "é", "W10", "WzEse31d"):
        assert served.get(ROWS, params={"cursor": wrong}).status_code == 400, wrong
    assert "of 'spend', not of 'orders'" in served.get("/v1/relations/orders/rows", params={"cursor": cursor}).text
    assert "leave that out" in served.get(ROWS, params={"cursor": cursor, "start": "1"}).text


def test_a_large_page_is_the_same_as_small_ones(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON is made of so many rows at a time."""
    path, lines = "/v1/relations/orders/rows?limit=100", {"accept": NDJSON["content-type"]}
    whole, text = served.get(path).json(), served.get(path, headers=lines).text
    assert [row["id"] for row in whole["rows"]] == list(range(100))
    for size in (1, 7, 99, 100):
        monkeypatch.setattr(formats, "PART_ROWS", size)
        assert served.get(path).json()["rows"] == whole["rows"]
        assert served.get(path, headers=lines).text == text
    assert served.get(f"{path}&start=500").json()["rows"] == []


def test_an_epoch_or_a_time_is_read_as_it_was(served: Served) -> None:
    before = served.get("/v1/relations/spend/rows").json()
    time.sleep(0.01)  # a millisecond is an epoch
    then = datetime.now(UTC)
    time.sleep(0.01)
    served.db.wait(served.db.put("orders", {"id": 7, "customer": 3, "total": "1.00"}))
    after = served.get("/v1/relations/spend/rows").json()
    assert after["rows"] != before["rows"] and after["epoch"] > before["epoch"]
    berlin = then.astimezone(timezone(timedelta(hours=1)))
    for at in (before["epoch"], f"e{before['epoch']}", then.isoformat(), berlin.isoformat()):
        found = served.get("/v1/relations/spend/rows", params={"at": at}).json()
        assert found["rows"] == before["rows"] and before["epoch"] <= found["epoch"] < after["epoch"], at
        row = served.get("/v1/relations/spend/row", params={"at": at, "key": 3})
        assert row.json()["n"] == 10
        many = served.post("/v1/read", {"reads": [{"relation": "spend", "key": 3}], "at": at}).json()
        assert many["results"][0]["row"] == row.json()


def test_an_epoch_that_is_not_kept_is_gone(served: Served) -> None:
    assert served.get(ROWS, params={"at": "1"}).json()["type"].endswith("epoch-expired")
    assert served.get(ROWS, params={"at": "1"}).status_code == 410
    early = served.get(ROWS, params={"limit": 1}).json()["epoch"]
    before = served.get("/v1/relations/spend/row?key=7").json()
    served.db.wait(served.db.put("orders", {"id": 500, "customer": 7, "total": "100.00"}))
    assert served.get("/v1/relations/spend/row", params={"key": "7", "at": early}).json() == before
    now = datetime.now(UTC).isoformat()
    assert served.get("/v1/relations/spend/row", params={"key": "7", "at": now}).json()["total"] == "195.00"


def test_several_reads_are_at_one_epoch(served: Served) -> None:
    asked = [
        {"relation": "spend", "key": 7},
        {"relation": "spend", "key": 99},
        {"relation": "spend", "prefix": 3},
        {"relation": "spend", "start": 1, "stop": 9, "limit": 2, "reverse": True, "columns": ["customer"]},
    ]
    found = served.post("/v1/read", {"reads": asked}).json()
    row, absent, prefix, part = found["results"]
    assert row["row"]["total"] == "95.00" and absent == {"row": None}
    assert [r["customer"] for r in prefix["rows"]] == [3] and prefix["truncated"] is False
    assert part == {"rows": [{"customer": 8}, {"customer": 7}], "truncated": True}
    again = served.post("/v1/read", {"reads": asked[:1], "at": found["epoch"]}).json()
    assert again == {"epoch": found["epoch"], "results": [row]}
    for wrong in ({"reads": []}, {"reads": [{}]}, {"reads": [{"relation": "spend", "kye": 1}]}, [], {"reeds": 1}):
        assert served.post("/v1/read", wrong).status_code == 400, wrong


def test_what_comes_between_several_reads_is_in_none_of_them(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    read = reads._one_read

    def then_written(*given: Any) -> Any:
        found = read(*given)
        served.db.wait(served.db.put("orders", {"id": 500, "customer": 7, "total": "100.00"}))
        return found

    monkeypatch.setattr(reads, "_one_read", then_written)
    asked = [{"relation": "spend", "key": 7}, {"relation": "spend", "key": 7}, {"relation": "spend", "prefix": 7}]
    found = served.post("/v1/read", {"reads": asked}).json()["results"]
    assert found[0] == found[1] == {"row": found[2]["rows"][0]} and found[0]["row"]["n"] == 10


def test_as_many_rows_as_were_asked_for_are_not_truncated(served: Served) -> None:
    def truncated(limit: int) -> bool:
        asked = {"relation": "spend", "start": 3, "stop": 6, "limit": limit}
        return bool(served.post("/v1/read", {"reads": [asked]}).json()["results"][0]["truncated"])

    assert [truncated(limit) for limit in (2, 3, 4)] == [True, False, False]


def test_a_snapshot_is_of_an_epoch_that_can_be_read(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(UTC)
    made = served.post("/v1/snapshots", {"at": now.isoformat()}).json()
    assert made["epoch"] == served.db.epoch
    assert served.post("/v1/read", {"reads": [{"relation": "spend", "key": 7}], "at": now.isoformat()}).is_success
    for later in (served.db.epoch + 60_000, f"e{served.db.epoch + 60_000}", (now + timedelta(hours=1)).isoformat()):
        assert served.post("/v1/snapshots", {"at": later}).json()["error"] == "NotYet", later
    served.db.wait(served.db.put("orders", {"id": 500, "customer": 7, "total": "100.00"}))

    def gone(*_: Any) -> Any:
        raise EpochExpired("is older than the history")
        yield

    held = kept(served)
    monkeypatch.setattr(served.db, "_history", gone)
    assert served.post("/v1/snapshots", {"at": made["epoch"]}).status_code == 410
    served.http.delete(f"/v1/snapshots/{made['snapshot']}")
    assert served.http.put(f"/v1/snapshots/{made['snapshot']}", json={}).status_code == 410, "it came too late"
    assert kept(served) == [] and held == [made["epoch"]]


def test_a_snapshot_keeps_its_epoch_until_it_is_dropped(served: Served) -> None:
    made = served.post("/v1/snapshots", {"seconds": 30})
    assert made.status_code == 201
    snapshot = made.json()
    pins = served.db.status()["pins"]
    assert [pin["epoch"] for pin in pins if pin["purpose"] == "gateway"] == [snapshot["epoch"]]
    path = f"/v1/snapshots/{snapshot['snapshot']}"
    assert served.http.put(path, json={"seconds": 600}).json()["epoch"] == snapshot["epoch"]
    assert served.http.delete(path).status_code == 204
    assert not [pin for pin in served.db.status()["pins"] if pin["purpose"] == "gateway"]
    assert served.http.put("/v1/snapshots/nonsense", json={}).status_code == 404
    assert served.post("/v1/snapshots", {"seconds": 0}).status_code == 400


def kept(served: Served) -> list[int]:
    return [pin["epoch"] for pin in served.db.status()["pins"] if pin["purpose"] == "gateway"]


def test_epochs_of_cursors_and_snapshots_are_kept_for_their_time(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = served.get(ROWS, params={"limit": 2}).json()
    assert kept(served) == [page["epoch"]]
    served.get(ROWS, params={"cursor": page["cursor"], "limit": 2})
    assert kept(served) == [page["epoch"]], "one pin for all pages of an epoch"
    served.db.wait(served.db.put("orders", {"id": 500, "customer": 7, "total": "100.00"}))
    monkeypatch.setattr(reads, "CURSOR_SECONDS", 0.5)
    assert served.get(ROWS, params={"limit": 2}).json()["epoch"] > page["epoch"]
    assert served.post("/v1/snapshots", {"seconds": 1}).status_code == 201
    deadline = time.monotonic() + 30
    while kept(served) != [page["epoch"]]:
        assert time.monotonic() < deadline, "they are kept for ever"
        time.sleep(0.05)


def test_a_snapshot_is_kept_for_what_was_asked_last(served: Served) -> None:
    now = [0.0]
    snapshots = Snapshots(served.database, lambda: now[0])
    name = snapshots.hold(served.db.epoch, 10)
    now[0] = 9.0
    snapshots.renew(name, 10)
    now[0] = 18.0
    snapshots.expire()
    assert len(snapshots) == 1, "it was renewed"
    snapshots.renew(name, 600)
    snapshots.renew(name, 1)
    now[0] = 20.0
    snapshots.expire()
    assert len(snapshots) == 0, "also for less than before"


def test_a_snapshot_that_goes_while_it_is_renewed_is_gone(served: Served) -> None:
    """Between the look at it and the new time somebody lets go of it."""

    snapshots = Snapshots(served.database)
    name = snapshots.hold(served.db.epoch, 10)
    held = snapshots._hold

    def hold(*given: Any) -> None:
        held(*given)
        snapshots.drop(name)

    snapshots._hold = hold  # type: ignore[method-assign]
    with pytest.raises(NoSuchResource):
        snapshots.renew(name, 10)
    assert len(snapshots) == 0


def test_a_page_of_a_base_table_tells_the_epoch_of_its_rows(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that come just before they are read are of that epoch, not of the one when the request came."""
    read = served.db._base_range

    def range(*given: Any) -> Any:
        served.db.wait(served.db.put("orders", {"id": 1000, "customer": 1}))
        return read(*given)

    monkeypatch.setattr(served.db, "_base_range", range)
    before = served.db.epoch
    answer = served.get("/v1/relations/orders/rows?start=1000")
    assert [row["id"] for row in answer.json()["rows"]] == [1000]
    assert answer.json()["epoch"] == served.db.epoch > before
    assert answer.headers["belvedere-epoch"] == str(served.db.epoch)


def test_a_page_of_another_epoch_than_its_cursor_is_none(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    cursor, original = served.get(ROWS, params={"limit": 2}).json()["cursor"], served.db.page
    monkeypatch.setattr(served.db, "page", lambda *args, **options: original(*args, **{**options, "at": None}))
    served.db.wait(served.db.put("orders", {"id": 500, "customer": 7, "total": "100.00"}))
    answer = served.get(ROWS, params={"cursor": cursor})
    assert (answer.status_code, answer.json()["error"]) == (410, "EpochExpired")


def test_a_token_is_waited_for_or_it_is_not_yet(served: Served) -> None:
    written = served.post("/v1/relations/orders/rows", {"id": 7, "customer": 1, "total": "0.50"})
    token = written.json()["token"]
    after = {"belvedere-after": token}
    assert served.get("/v1/relations/spend/row?key=1", headers=after).json()["n"] == 11
    assert served.get("/v1/relations/spend/rows?prefix=1", headers=after).json()["rows"][0]["n"] == 11
    future = {"belvedere-after": f"e{served.db.epoch + 3_600_000}", "belvedere-wait": "0.1"}
    late = served.get("/v1/relations/spend/row?key=1", headers=future)
    assert (late.status_code, late.json()["error"]) == (409, "NotYet")
    assert late.headers["retry-after"] == "1" and late.json()["lag_ms"] >= 0
    for wrong in (
        {"belvedere-after": "x"},
        {"belvedere-wait": "-1"},
        {"belvedere-wait": "nan"},
    ):
        assert served.get("/v1/relations/spend/row?key=1", headers=wrong).status_code == 400, wrong


def test_relations_are_listed_and_described(served: Served) -> None:
    listed = served.get("/v1/relations").json()["relations"]
    assert [(one["name"], one["kind"]) for one in listed] == [("orders", "table"), ("spend", "view")]
    assert listed[1] == served.get("/v1/relations/spend").json()
    assert listed[1]["reads"] == ["orders"] and listed[0]["dependants"] == ["spend"]
    assert listed[0]["columns"][2] == {"name": "total", "type": "decimal(12,2)", "nullable": True}
    assert [one["name"] for one in served.get("/v1/relations?kind=view").json()["relations"]] == ["spend"]


def test_rows_in_quarantine_are_told_with_their_reasons(served: Served) -> None:
    served.db.execute("CREATE MATERIALIZED VIEW shares AS SELECT id, total / (customer - 3) AS share FROM orders")
    found = served.get("/v1/relations/shares/quarantine").json()["rows"]
    assert len(found) == 10
    assert all("division" in json.dumps(row) or "zero" in json.dumps(row) for row in found)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/v1/relations/spend/row", "'key' is missing"),
        ("/v1/relations/spend/row?key=Oslo", 'key="Oslo"'),
        ("/v1/relations/spend/row?key=7&key=8", "given twice"),
        ("/v1/relations/spend/row?key=7&limit=1", "unknown parameter 'limit'"),
        ("/v1/relations/spend/row?key=7&at=yesterday", "a time such as"),
        ("/v1/relations/spend/rows?limit=0", "from 1 to"),
        ("/v1/relations/spend/rows?limit=1e3", "from 1 to"),
        ("/v1/relations/spend/rows?reverse=yes", "true or false"),
        ("/v1/relations/spend/rows?prefix=1&start=1", "leave start="),
        ("/v1/relations/spend/rows?columns=[1]", "list of names"),
        ("/v1/relations/spend/rows?start=%FF", "no UTF-8"),
        ("/v1/relations/%FF/rows", "no UTF-8"),
        ("/v1/relations/a%00b/rows", "control characters"),
    ],
)
def test_parameters_that_make_no_sense_are_refused_by_name(served: Served, path: str, says: str) -> None:
    answer = served.get(path)
    assert answer.status_code == 400
    assert says in answer.json()["detail"]


def test_keys_of_wrong_types_are_named(served: Served) -> None:
    assert served.get('/v1/relations/spend/row?key="7"').json()["customer"] == 7  # digits as text, for big ones
    for wrong in ('"x"', "1.5", "[1,2]", '{"n":1}', "true", "99999999999999999999", "[[1]]"):
        answer = served.get("/v1/relations/spend/row", params={"key": wrong})
        assert (answer.status_code, answer.json()["error"]) == (422, "DataError"), wrong
