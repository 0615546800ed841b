"""A write that is repeated by its name happens once, also when the store was restarted in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from belvedere.backend.served import requests
from belvedere.backend.served.base import ServedBaseTables
from belvedere.backend.served.environment import Environment
from belvedere.errors import DataError
from belvedere.protocol.exactly_once import START, Seq, SourceId
from tests.backend.served.base_changes import ORDERS, Change, changes_of, rows_of


class Directory:
    def __init__(self, path: Path) -> None:
        self.path, self.now = path, 1_000_000
        self.open()

    def open(self) -> None:
        self.environment = Environment(self.path)
        self.base = ServedBaseTables(self.environment, clock=lambda: self.now)

    def put(self, id: int, name: str, request: str) -> dict[SourceId, Seq]:
        return self.base.put("orders", changes_of([Change(id, {"b": name})]), request=request)

    def customer(self, id: int) -> str:
        return str({row["id"]: row["b"] for row in rows_of(self.base)}[id])

    def entries(self) -> int:
        (source,) = self.base.sources()
        return len(self.base.read_log(source.id, START, 1 << 30, 1 << 30))

    def remembered(self) -> int:
        with self.environment.reading() as txn:
            return int(txn.stat(self.environment.db["base_requests"])["entries"])


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    made = Directory(tmp_path)
    made.base.create_table(ORDERS)
    yield made
    made.environment.close()


def test_a_repeated_request_answers_the_same_and_writes_nothing(directory: Directory) -> None:
    first = directory.put(1, "anna", "one")
    directory.put(1, "ben", "two")
    assert directory.put(1, "anna", "one") == first
    assert directory.customer(1) == "ben" and directory.entries() == 2
    directory.environment.close()
    directory.open()
    assert directory.put(1, "anna", "one") == first
    assert directory.customer(1) == "ben" and directory.entries() == 2
    directory.put(1, "carl", "")
    directory.put(1, "carl", "")
    assert directory.entries() == 4, "without a name a write is another one"


def test_old_requests_are_forgotten(directory: Directory) -> None:
    for n in range(50):
        directory.now += requests.KEPT_US // 10
        directory.put(n, "anna", f"request {n}")
    assert directory.remembered() <= 2 * 12
    directory.put(49, "ben", "request 49")
    assert directory.customer(49) == "anna"
    with pytest.raises(DataError, match="more than 64 bytes"):
        directory.put(1, "anna", "x" * 65)
