"""Statements, manifests, drops, plans over HTTP; what is refused leaves everything as it was."""

from __future__ import annotations

import json

import pytest

import belvedere
from belvedere.errors import CatalogError
from tests.embedded import damage
from tests.gateway.serving import ARROW, JSON, Served

YAML = {"content-type": "application/yaml"}


def view(name: str, query: str) -> str:
    return (
        f"apiVersion: belvedere.dev/v1alpha1\nkind: MaterializedView\nmetadata: {{name: {name}}}\n"
        f"spec: {{query: {json.dumps(query)}}}\n"
    )


TABLE = """apiVersion: belvedere.dev/v1alpha1
kind: BaseTable
metadata: {name: items}
spec: {columns: [{name: id, type: bigint}, {name: city, type: string}], key: [id]}
"""
GOOD = view("by-city", "SELECT city, count(*) AS n FROM items GROUP BY city")
ABOVE = view("big", "SELECT city FROM by_city WHERE n > 3")
BAD = view("wrong", "SELECT nothing FROM items")


def names(served: Served) -> list[str]:
    return [one["name"] for one in served.get("/v1/relations").json()["relations"]]


def test_statements_are_carried_out(served: Served) -> None:
    created = served.sql("CREATE MATERIALIZED VIEW few AS SELECT id FROM orders WHERE id < 5")
    assert created.json()["token"] == created.headers["belvedere-token"]
    assert served.sql("SELECT count(*) AS n FROM few").json()["rows"] == [{"n": 5}]
    assert served.sql("SHOW VIEWS").json()["rows"][0]["view"] == "spend"
    columns = served.get("/v1/relations/spend").json()["columns"]
    told = served.sql("SELECT * FROM spend").json()["columns"]
    assert told == [{"name": c["name"], "type": c["type"]} for c in columns], "types have one name"
    assert "pre-aggregation" in served.sql("EXPLAIN spend").json()["text"]
    token = served.sql("INSERT INTO orders VALUES (500, 1, 2.00)").json()["token"]
    after = {"belvedere-after": token, **JSON}
    found = served.http.post(
        "/v1/sql", content=json.dumps({"sql": "SELECT id FROM orders WHERE id = 500"}), headers=after
    )
    assert found.json()["rows"] == [{"id": 500}]
    assert served.http.post("/v1/sql", json={"sql": "SHOW VIEWS", "x": 1}).status_code == 400
    arrow = served.http.post(
        "/v1/sql", content="SELECT n FROM spend", headers={"content-type": "application/sql", "accept": ARROW}
    )
    assert arrow.headers["content-type"] == ARROW


def test_manifests_are_applied_and_applying_again_changes_nothing(served: Served) -> None:
    text = "---\n".join([TABLE, GOOD, ABOVE])
    found = served.post("/v1/apply", text, headers=YAML).json()
    assert [(d["kind"], d["name"], d["action"]) for d in found["documents"]] == [
        ("table", "items", "created"),
        ("view", "by_city", "created"),
        ("view", "big", "created"),
    ]
    again = served.post("/v1/apply", text, headers=YAML).json()
    assert {d["action"] for d in again["documents"]} == {"unchanged"}
    changed = served.post("/v1/apply", view("big", "SELECT city FROM by_city WHERE n > 5"), headers=YAML).json()
    assert changed["documents"][0]["action"] == "changed"


def test_a_refused_document_stops_all_of_them_and_every_refusal_is_named(served: Served) -> None:
    text = "---\n".join([TABLE, GOOD, BAD, view("above-wrong", "SELECT 1 AS a FROM wrong")])
    answer = served.post("/v1/apply", text, headers=YAML)
    told = answer.json()
    assert answer.status_code == 400 and told["error"] == "SqlError"
    assert [d["action"] for d in told["documents"]] == ["created", "created", "refused", "refused"]
    assert "nothing" in told["documents"][2]["problem"]["detail"]
    assert names(served) == ["orders", "spend"]


def test_partial_applies_what_can_be_accepted_and_names_the_rest(served: Served) -> None:
    text = "---\n".join([TABLE, BAD, GOOD, view("above-wrong", "SELECT 1 AS a FROM wrong"), ABOVE])
    told = served.post("/v1/apply?partial=true", text, headers=YAML).json()
    assert {d["name"]: d["action"] for d in told["documents"]} == {
        "items": "created",
        "wrong": "refused",
        "by_city": "created",
        "above-wrong": "refused",
        "big": "created",
    }
    assert set(names(served)) == {"orders", "spend", "items", "by_city", "big"}


def test_a_dry_run_changes_nothing_and_forecasts_the_cost(served: Served) -> None:
    text = "---\n".join(
        [
            view("again", "SELECT customer, sum(total) AS total FROM orders GROUP BY customer"),
            view("per-total", "SELECT total, count(*) AS n FROM orders GROUP BY total"),
        ]
    )
    told = served.post("/v1/apply?dry_run=true", text, headers=YAML).json()
    assert told["token"] is None
    shared, own = (d["forecast"] for d in told["documents"])
    assert [zone["key"] for zone in own["zones"]] == [["orders.id"], ["total"]]
    assert [state["table"] for state in shared["state"]] == ["VIEW"], "the aggregate is there already"
    assert {state["table"]: state["rows"] for state in own["state"]} == {"PRE-AGGREGATION": 100, "VIEW": 100}
    assert own["bytes"] == sum(state["bytes"] for state in own["state"]) > 0
    assert names(served) == ["orders", "spend"]
    assert served.post("/v1/apply?dry_run=true", BAD, headers=YAML).status_code == 400
    for wrong in ("", "---\n---\n", "a: [", "\x00", "kind: Nothing"):
        assert served.post("/v1/apply", wrong, headers=YAML).status_code == 400, wrong


def test_drops(served: Served) -> None:
    refused = served.http.delete("/v1/relations/orders")
    assert (refused.status_code, refused.json()["error"]) == (409, "CatalogError")
    assert "spend" in refused.json()["detail"]
    assert served.http.delete("/v1/relations/SPEND").json()["token"]
    assert served.http.delete("/v1/relations/spend").status_code == 404
    assert served.http.delete("/v1/relations/spend?if_exists=true").status_code == 200
    assert served.http.delete("/v1/relations/orders").status_code == 200


def test_plans_as_text_json_and_picture(served: Served) -> None:
    path = "/v1/relations/spend/plan"
    assert "zones" in served.get(path).text
    data = served.get(path, headers={"accept": "application/json"}).json()
    assert [zone["key"] for zone in data["zones"]] == [["orders.id"], ["customer"]]
    assert served.get(path, headers={"accept": "image/svg+xml"}).text.startswith("<svg")
    sql = {"content-type": "application/sql"}
    assert (
        "join"
        in served.post("/v1/explain", "SELECT o.id FROM orders o JOIN orders p ON o.id = p.customer", headers=sql).text
    )
    assert served.post("/v1/explain", "SELECT x FROM orders", headers=sql).json()["error"] == "SqlError"


def test_status_lag_and_verification(served: Served) -> None:
    told = served.get("/v1/status").json()
    spend = told["views"]["spend"]
    assert (spend["rows"], spend["state"], spend["complete"], spend["verified"]) == (10, "Ready", True, None)
    assert (spend["reads"], told["tables"]["orders"]["rows"]) == (["orders"], 100)
    assert served.get("/v1/lag").json()["lag_ms"] == 0
    assert served.get("/v1/pool").status_code == 404
    assert served.post("/v1/verify", {"views": ["spend"]}).json()["ok"] is True
    assert served.get("/v1/relations/spend/status").json()["verified"]["ok"] is True
    lines = served.post("/v1/verify", "{}", headers={**JSON, "accept": "application/x-ndjson"}).text.splitlines()
    events = [json.loads(line) for line in lines]
    assert [one["event"] for one in events] == ["progress", "report", "done"]
    assert events[1]["report"]["view"] == "spend" and events[2]["ok"]
    assert served.post("/v1/verify", {"views": ["orders"]}).status_code == 409
    assert served.post("/v1/verify", {"view": "spend"}).status_code == 400


def test_a_view_is_repaired(served: Served) -> None:
    """By whoever asks over HTTP, and by the client of it."""
    path = "/v1/relations/spend/repair"
    assert damage.corrupt_row(served.db, "spend")
    told = served.post(path, {"dry_run": True}).json()
    assert (told["ok"], told["found"], told["tables"]["view spend"]) == (False, 1, 1)
    assert served.post("/v1/verify", {"views": ["spend"]}).json()["ok"] is False
    (row,) = served.db._runtime.call(lambda: served.db.scan("spend").to_pylist()[:1])
    keys = [[key] for key in range(-1, 30)]
    assert row and served.post(path, {"dry_run": True, "keys": keys}).json()["found"] == 1
    assert served.post(path, {"dry_run": True, "start": [10**6]}).json()["found"] == 0
    done = served.post(path, {}).json()
    assert (done["ok"], done["mended"], done["remaining"]) == (True, 1, 0)
    assert served.post("/v1/verify", {"views": ["spend"]}).json()["ok"] is True
    with belvedere.connect(served.url) as db:
        assert damage.delete_row(served.db, "spend")
        found = db.repair("spend", dry_run=True)
        assert found.tables["view spend"] == 1 and found.rows[0].problem == "missing"
        assert db.repair("spend", everything=True).rebuilt == ("spend",) and db.verify("spend").ok
        with pytest.raises(CatalogError, match="a gateway verifies rows of views"):
            db.verify("spend", state=True)
    for wrong in ({"key": 1}, {"keys": [1]}, {"keys": 1}, {"dry_run": "yes"}, []):
        assert served.post(path, wrong).status_code == 400, wrong
    assert served.post("/v1/relations/nothing/repair", {}).status_code == 404


def test_rows_to_repair_are_named_in_the_forms_of_json(served: Served) -> None:
    """A total is a decimal and a binary has no text: both are what they are in rows."""
    served.sql("CREATE MATERIALIZED VIEW totals AS SELECT total, count(*) AS n FROM orders GROUP BY total")
    path = "/v1/relations/totals/repair"
    row = served.db.scan("totals").to_pylist()[0]
    assert damage.corrupt_row(served.db, "totals")
    keys = [[str(one["total"])] for one in served.db.scan("totals").to_pylist()]
    assert served.post(path, {"dry_run": True, "keys": keys}).json()["found"] == 1
    assert served.post(path, {"dry_run": True, "keys": [["nothing"]]}).status_code == 422
    with belvedere.connect(served.url) as db:
        assert db.repair("totals", keys=[row["total"], "0.01"], dry_run=True).found <= 1
        assert db.repair("totals", start=row["total"]).ok and db.verify("totals").ok
