"""Key ranges of base tables in LMDB: each is a source with a log of its own, from its birth until it is forgotten.

What is written here changes rarely; writers keep the layout in memory and look at its version in their transaction, so
nobody ever writes to a range that has ended.

    base_tables   name -> number, definition        base_sources  number -> range, parents, last seq, node, generation
    base_log      number, seq -> chunk              base_acked    number -> seq up to which it was acknowledged
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from belvedere.backend.base_layout import BaseTable, Range, RangeLayout
from belvedere.backend.served.environment import Db, Txn
from belvedere.model.describe import table_json, table_of
from belvedere.protocol.exactly_once import START, Seq, SourceId

NUMBER = 4
_WORD = 8
T = TypeVar("T")


def version(txn: Txn, db: dict[str, Db]) -> int:
    return int.from_bytes(txn.get(b"layout", db=db["meta"], default=b""), "big")


def load(txn: Txn, db: dict[str, Db]) -> RangeLayout:
    tables, ranges = {}, {}
    for name, value in txn.cursor(db["base_tables"]):
        found = json.loads(value)
        tables[name.decode()] = BaseTable(found["number"], table_of(found["table"]))
    for key, value in txn.cursor(db["base_sources"]):
        range = _range(int.from_bytes(key, "big"), json.loads(value))
        ranges[range.id] = range
    open = {name: tuple(_ordered(ranges.values(), name)) for name in tables}
    return RangeLayout(version(txn, db), tables, ranges, open)


def _ordered(ranges: Iterable[Range], table: str) -> list[Range]:
    return sorted((r for r in ranges if r.table == table and r.last is None), key=lambda range: range.start)


def _range(number: int, found: dict[str, object]) -> Range:
    start, stop, last = str(found["start"]), found["stop"], found["last"]
    parents = found["parents"]
    assert isinstance(parents, list) and isinstance(found["generation"], int) and isinstance(found["of"], int)
    return Range(
        number,
        str(found["table"]),
        found["of"],
        bytes.fromhex(start),
        None if stop is None else bytes.fromhex(str(stop)),
        str(found["node"]),
        found["generation"],
        tuple(SourceId(parent) for parent in parents),
        Seq(last) if isinstance(last, int) else None,
    )


# --- changes of the layout, each inside a transaction


def touch(txn: Txn, db: dict[str, Db]) -> None:
    """The layout is another one from here on."""
    txn.put(b"layout", (version(txn, db) + 1).to_bytes(_WORD, "big"), db=db["meta"])


def save_table(txn: Txn, db: dict[str, Db], table: BaseTable) -> None:
    value = json.dumps({"number": table.number, "table": table_json(table.definition)}).encode()
    txn.put(table.definition.name.encode(), value, db=db["base_tables"])
    touch(txn, db)


def save(txn: Txn, db: dict[str, Db], range: Range) -> None:
    value = {
        "table": range.table,
        "of": range.of,
        "start": range.start.hex(),
        "stop": None if range.stop is None else range.stop.hex(),
        "node": range.node,
        "generation": range.generation,
        "parents": list(range.parents),
        "last": range.last,
    }
    txn.put(range.number.to_bytes(NUMBER, "big"), json.dumps(value).encode(), db=db["base_sources"])
    touch(txn, db)


def make(txn: Txn, db: dict[str, Db], range: Range) -> Range:
    """A new range; its number has never been used before."""
    number = int.from_bytes(txn.get(b"sources", db=db["meta"], default=b""), "big") + 1
    txn.put(b"sources", number.to_bytes(_WORD, "big"), db=db["meta"])
    made = replace(range, number=number)
    save(txn, db, made)
    return made


def end(txn: Txn, db: dict[str, Db], range: Range) -> None:
    save(txn, db, replace(range, last=newest(txn, db, range)))


def newest(txn: Txn, db: dict[str, Db], range: Range) -> Seq:
    """The seq of the last entry: in the log, or trimmed, which only those are that were acknowledged."""
    cursor = txn.cursor(db["base_log"])
    behind = (range.number + 1).to_bytes(NUMBER, "big")
    found = cursor.prev() if cursor.set_range(behind) else cursor.last()
    last = acknowledged(txn, db, range)
    if found and cursor.key()[:NUMBER] == range.number.to_bytes(NUMBER, "big"):
        last = max(last, Seq(int.from_bytes(cursor.key()[NUMBER:], "big")))
    return last


def acknowledged(txn: Txn, db: dict[str, Db], range: Range) -> Seq:
    found = txn.get(range.number.to_bytes(NUMBER, "big"), db=db["base_acked"])
    return START if found is None else Seq(int.from_bytes(found, "big"))


def log_key(range: Range, seq: int) -> bytes:
    return range.number.to_bytes(NUMBER, "big") + seq.to_bytes(_WORD, "big")


def entries(txn: Txn, db: dict[str, Db], range: Range, after: int) -> Iterator[tuple[Seq, bytes]]:
    """The log behind a position, in order."""
    own = range.number.to_bytes(NUMBER, "big")
    cursor = txn.cursor(db["base_log"])
    more = cursor.set_range(log_key(range, after + 1))
    while more and cursor.key().startswith(own):
        yield Seq(int.from_bytes(cursor.key()[NUMBER:], "big")), cursor.value()
        more = cursor.next()


def acknowledge(txn: Txn, db: dict[str, Db], range: Range, upto: Seq) -> None:
    if upto > acknowledged(txn, db, range):
        txn.put(range.number.to_bytes(NUMBER, "big"), upto.to_bytes(_WORD, "big"), db=db["base_acked"])


def trim_log(txn: Txn, db: dict[str, Db], range: Range, upto: int) -> None:
    """The entries up to here are needed by nobody any more."""
    cursor = txn.cursor(db["base_log"])
    if upto >= 0 and cursor.set_range(log_key(range, 0)):
        while cursor.key() and cursor.key() <= log_key(range, upto):
            cursor.delete()


def forget(txn: Txn, db: dict[str, Db], range: Range) -> None:
    """Nothing of the source is left."""
    number = range.number.to_bytes(NUMBER, "big")
    cursor = txn.cursor(db["base_log"])
    if cursor.set_range(number):
        while cursor.key().startswith(number):
            cursor.delete()
    txn.delete(number, db=db["base_acked"])
    txn.delete(number, db=db["base_sources"])
    touch(txn, db)
