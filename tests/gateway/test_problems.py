"""Every error has its status and its name; what is told beside them is enough to raise it again elsewhere."""

from __future__ import annotations

import inspect

import pytest

from belvedere import errors
from belvedere.gateway import problems
from tests.gateway.serving import Served

CLASSES = [found for _, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, Exception)]
STATUS = {
    "AccessDenied": 403, "BadRequest": 400, "BelowHorizon": 410, "BelvedereError": 500, "CatalogError": 409,
    "Closed": 503, "Contradiction": 500, "CoordinationUnavailable": 503, "Damaged": 500, "DataError": 422,
    "Defect": 500, "Draining": 503,
    "SlowReader": 503, "DiskError": 507, "EpochExpired": 410, "FormatError": 500, "Incompatible": 502, "Locked": 503,
    "NoSuchResource": 404, "NotAuthenticated": 401, "NotYet": 409, "OutOfTime": 504, "PeerUnavailable": 503,
    "ReadOnly": 403, "RequestError": 500, "RequestReused": 422, "SqlError": 400, "StorageError": 500,
    "StoreUnavailable": 503,
    "TooLarge": 413, "TooManyRequests": 429, "Unavailable": 503, "UnknownRelation": 404, "UnsupportedSql": 422,
    "ViewFailed": 409, "ViewReplaced": 409,
}  # fmt: skip


def made(kind: type[Exception]) -> Exception:
    return kind("what happened", 5.0) if kind is errors.NotYet else kind("what happened")


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_has_its_status(kind: type[Exception]) -> None:
    told = problems.document(made(kind), "r1")
    assert told["status"] == STATUS[kind.__name__]
    assert told["error"] == kind.__name__
    assert told["detail"] == "what happened"
    assert told["instance"] == "urn:belvedere:request:r1"


def test_no_name_stands_for_two_statuses() -> None:
    names = [kind.name for kind in problems.KINDS.values()]
    assert len(set(names)) == len(names)


def test_errors_that_may_pass_say_when_to_come_back() -> None:
    assert dict(problems.headers(errors.TooManyRequests("", 2.5))) == {"retry-after": "3"}
    assert "retry-after" in dict(problems.headers(errors.StoreUnavailable("")))
    assert dict(problems.headers(errors.DataError(""))) == {}


def test_what_was_not_meant_tells_no_insides() -> None:
    told = problems.document(ZeroDivisionError("secret path /etc"))
    assert (told["status"], told["error"]) == (500, "Defect")
    assert "secret" not in str(told)


def test_an_sql_error_has_its_position_and_hint(served: Served) -> None:
    told = served.sql("SELECT custmer FROM orders").json()
    assert (told["status"], told["line"], told["column"]) == (400, 1, 8)
    assert "customer" in told["hint"] + told["detail"]
    assert served.sql("CREATE MATERIALIZED VIEW v AS SELECT rank() OVER () AS r FROM orders").status_code == 422


def test_paths_and_methods_that_are_not_there(served: Served) -> None:
    assert served.get("/v1/nothing").status_code == 404
    assert served.get("/v1/relations/spend/rows/").status_code == 404
    wrong = served.http.patch("/v1/relations/spend/rows", content=b"")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD, POST")
    assert served.http.request("OPTIONS", "/v1/relations/spend/rows").status_code == 405
    head = served.http.head("/v1/relations/spend/row?key=7")
    assert (head.status_code, head.content) == (200, b"") and int(head.headers["content-length"]) > 10


def test_names_with_odd_characters_are_one_part_of_the_path(served: Served) -> None:
    served.db.execute("CREATE TABLE `a/b c?ü` (id BIGINT PRIMARY KEY)")
    path = "/v1/relations/a%2Fb%20c%3F%C3%BC"
    assert served.post(f"{path}/rows", {"id": 1}).status_code == 200
    assert served.get(path).json()["name"] == "a/b c?ü"
    assert served.get("/v1/relations/..%2f..%2fetc%2fpasswd").status_code == 404
    assert served.http.delete(path).status_code == 200


def test_the_name_of_a_request_is_given_back_if_it_is_harmless(served: Served) -> None:
    assert served.get("/v1", headers={"belvedere-request": "abc-1"}).headers["belvedere-request"] == "abc-1"
    for odd in ("a b", "x" * 65, "é".encode().decode("latin-1")):
        assert (
            served.get("/v1", headers={"belvedere-request": odd.encode("latin-1")}).headers["belvedere-request"] != odd
        )
