"""A view that cannot be computed any more, over HTTP: said with the reason, read as it was by who wants that."""

from __future__ import annotations

import pytest

from tests.embedded.test_failed_views import Breaker
from tests.gateway.serving import Served, subscribed


@pytest.fixture
def breaker(monkeypatch: pytest.MonkeyPatch) -> Breaker:
    return Breaker(monkeypatch)


def test_a_view_that_has_failed_says_so_everywhere(served: Served, breaker: Breaker) -> None:
    row, rows = "/v1/relations/spend/row?key=7", "/v1/relations/spend/rows?limit=4"
    before = served.get("/v1/relations/spend/rows").json()["rows"]
    with subscribed(served, "/v1/relations/spend/changes") as events:
        next(events)
        breaker.views = {("spend", 1)}
        served.db.wait(served.db.put("orders", {"id": 1, "customer": 7, "total": "1.00"}))
        name, _, told = list(events)[-1]
    assert (name, told["error"], told["resumable"]) == ("end", "ViewFailed", False)
    for path in (row, rows, "/v1/relations/spend/changes", "/v1/relations/spend/plan"):
        answer = served.get(path)
        assert answer.status_code in (404, 409), path
    answer = served.get(row)
    assert (answer.status_code, answer.json()["error"]) == (409, "ViewFailed")
    assert answer.json()["epoch"] > 0
    status = served.get("/v1/relations/spend/status").json()
    assert status["state"] == "Failed" and "ZeroDivisionError" in status["reason"]
    assert served.get("/v1/status").json()["problems"]
    assert served.get(f"{row}&allow_stale=true").json() == before[7]
    stale, cursor = [], None
    while True:
        params = {"cursor": cursor} if cursor else {"limit": "4", "allow_stale": "true"}
        page = served.get("/v1/relations/spend/rows", params=params).json()
        stale, cursor = stale + page["rows"], page["cursor"]
        if cursor is None:
            break
    assert stale == before
    assert served.http.delete("/v1/relations/spend").status_code == 200
    assert served.get(row).status_code == 404
