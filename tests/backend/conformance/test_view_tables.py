"""Tables that are written with keys: rows in the order of keys, by range, at any epoch, whatever else was done; what
their rows are made of, and what they were before."""

from __future__ import annotations

import random
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from belvedere.backend.seam import RowShape, Store, TableWrite
from belvedere.backend.served.by_key import LIMIT
from belvedere.backend.served.lmdb_store import LmdbStore
from belvedere.engine.rowcodec import RowCodec
from belvedere.engine.vec import Vec
from belvedere.errors import BelowHorizon, Contradiction, DataError
from belvedere.model.keys import after_prefix
from belvedere.model.ranges import KeyRange
from belvedere.types import DATE, STRING, Column, decimal
from tests.backend.conformance.conftest import HBASE_KINDS, KINDS, make, versions_of
from tests.backend.conformance.rows import LAST, collect, ids, values

ALL = KeyRange()
EPOCH = 1_000


def write(store: Store, epoch: int, rows: dict[bytes, bytes | None], table: str = "t") -> None:
    """Values that begin with ~ are hidden."""
    keys = pa.array(list(rows), pa.binary())
    hidden = np.array([is_hidden(value) for value in rows.values()], np.bool_)
    written = TableWrite(table, ids_of(*rows), values(*rows.values()), True, keys, hidden if hidden.any() else None)
    store.write(epoch, [written])


def is_hidden(value: bytes | None) -> bool:
    return value is not None and value.startswith(b"~")


def ids_of(*keys: bytes) -> np.ndarray:
    return ids(*[NUMBERS.setdefault(key, len(NUMBERS)) for key in keys])


NUMBERS: dict[bytes, int] = {}


def ordered(store: Store, wanted: KeyRange = ALL, below: int = LAST, table: str = "t") -> list[bytes]:
    """Values in the order in which they come; no piece is empty."""
    found: list[bytes] = []
    for piece, content in store.range(table, wanted, below):
        assert len(piece) == len(content) > 0 and not content.null_count
        found += content.to_pylist()
    return found


def test_rows_come_in_the_order_of_keys(store: Store) -> None:
    assert ordered(store) == []
    write(store, 10, {b"b": b"2", b"": b"0", b"c\0": b"4", b"a": b"1", b"c": b"3", b"\xff\xff": b"5"})
    assert ordered(store) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert ordered(store, KeyRange(reverse=True)) == [b"5", b"4", b"3", b"2", b"1", b"0"]
    assert ordered(store, KeyRange(b"a", b"c")) == [b"1", b"2"]
    assert ordered(store, KeyRange(b"a", b"c\0", 2, reverse=True)) == [b"3", b"2"]
    assert ordered(store, KeyRange(b"c", after_prefix(b"c"))) == [b"3", b"4"]
    assert ordered(store, KeyRange(limit=0)) == [] and ordered(store, KeyRange(b"x", b"y")) == []
    assert ordered(store, table="other") == []


def test_a_range_is_as_of_its_epoch(store: Store) -> None:
    write(store, 10, {b"a": b"1", b"b": b"2"})
    write(store, 20, {b"a": None, b"c": b"3"})
    write(store, 30, {b"a": b"4", b"b": None})
    assert [ordered(store, below=below) for below in (10, 11, 20, 21, 31)] == [
        [],
        [b"1", b"2"],
        [b"1", b"2"],
        [b"2", b"3"],
        [b"4", b"3"],
    ]


def test_a_limit_counts_rows_and_not_what_is_gone(store: Store) -> None:
    keys = [b"%04d" % number for number in range(2000)]
    write(store, 10, dict.fromkeys(keys, b"old"))
    write(store, 20, dict.fromkeys(keys[:1500], None))
    assert ordered(store, KeyRange(limit=3)) == [b"old"] * 3
    assert len(ordered(store, KeyRange(limit=1000))) == 500
    assert len(ordered(store, KeyRange(limit=1501, reverse=True), below=20)) == 1501


def test_a_range_that_comes_in_pieces_leaves_nothing_out(store: Store) -> None:
    """Every key is followed by the least one behind it, so that each end of a piece stands before one."""
    keys = sorted(key for number in range(1500) for key in (b"%04d" % number, b"%04d\0" % number, b"%04d\0\0" % number))
    write(store, 10, {key: key for key in keys})
    assert ordered(store) == keys and ordered(store, KeyRange(reverse=True)) == keys[::-1]
    write(store, 20, dict.fromkeys(keys[1::3], None))
    left = [key for at, key in enumerate(keys) if at % 3 != 1]
    assert ordered(store) == left and ordered(store, KeyRange(limit=1700, reverse=True)) == left[::-1][:1700]


def test_long_keys_keep_their_order(store: Store) -> None:
    stem = b"x" * (LIMIT - 16)
    keys = [stem[:-1], stem, stem + b"a" * 40, stem + b"b", stem + b"b" * 3000, stem + b"c", stem[:-1] + b"y", b"y"]
    write(store, 10, {key: b"%d" % number for number, key in reversed(list(enumerate(keys)))})
    everything = [b"%d" % number for number in range(len(keys))]
    assert ordered(store) == everything
    assert ordered(store, KeyRange(reverse=True)) == everything[::-1]
    for at, key in enumerate(keys):
        assert ordered(store, KeyRange(key)) == everything[at:]
        assert ordered(store, KeyRange(b"", key, reverse=True)) == everything[:at][::-1]
        assert ordered(store, KeyRange(key, limit=1)) == everything[at : at + 1]
    write(store, 20, {keys[4]: None})
    collect(store, 30, 30)
    assert ordered(store) == everything[:4] + everything[5:]


def test_a_row_that_comes_back_has_its_place_again(store: Store) -> None:
    write(store, 10, {b"a": b"1", b"b": b"2", b"c": b"3"})
    write(store, 20, {b"b": None})
    collect(store, 30, 30)
    assert ordered(store) == [b"1", b"3"]
    write(store, 40, {b"b": b"4"})
    assert ordered(store) == [b"1", b"4", b"3"]
    write(store, 50, {b"b": None})
    write(store, 60, {b"b": b"5"})
    collect(store, 55, 55)  # what is removed is not the last of the row
    assert ordered(store) == [b"1", b"5", b"3"]


def test_what_is_dropped_is_gone_and_the_name_is_free(store: Store) -> None:
    write(store, 10, {b"a": b"1", b"b": b"2"})
    store.drop_tables(["t"])
    assert ordered(store) == []
    write(store, 20, {b"b": b"3"})
    assert ordered(store) == [b"3"]


def test_a_range_below_the_horizon_is_refused(store: Store) -> None:
    write(store, 10, {b"a": b"1"})
    write(store, 20, {b"a": b"2"})
    collect(store, 15, 15)
    with pytest.raises(BelowHorizon, match="'t'"):
        ordered(store, below=11)
    assert ordered(store, below=16) == [b"1"]


def test_a_range_of_rows_without_keys_is_refused(store: Store) -> None:
    store.write(10, [TableWrite("t", ids(1, 2), values(b"1", None), True)])
    with pytest.raises(DataError, match="'t' was written without keys"):
        ordered(store)


def test_keys_that_do_not_fit_the_rows_are_refused(store: Store) -> None:
    with pytest.raises(DataError, match="2 ids and 1 keys"):
        store.write(10, [TableWrite("t", ids(1, 2), values(b"1", b"2"), True, pa.array([b"a"], pa.binary()))])
    with pytest.raises(DataError, match="1 of them null"):
        store.write(10, [TableWrite("t", ids(1), values(None), True, pa.array([None], pa.binary()))])


def test_hidden_rows_are_read_by_id_and_not_in_order(store: Store) -> None:
    write(store, 10, {b"a": b"1", b"b": b"~2", b"c": b"3", b"d": b"4", b"e": b"~"})
    write(store, 20, {b"a": b"~5", b"b": b"6", b"c": None})
    for _ in range(2):
        assert ordered(store) == [b"6", b"4"] and ordered(store, KeyRange(limit=1, reverse=True)) == [b"4"]
        assert ordered(store, KeyRange(b"a", limit=1)) == [b"6"] and ordered(store, KeyRange(b"", b"b")) == []
        assert store.read("t", ids_of(b"a", b"b", b"c", b"e"), LAST).to_pylist() == [b"~5", b"6", None, b"~"]
        everything = [value for _, content in store.scan("t", 0, 1 << 14, LAST) for value in content.to_pylist()]
        assert sorted(everything) == [b"4", b"6", b"~", b"~5"]
        collect(store, 20, 20)
    write(store, 30, {b"a": b"7", b"d": b"~8", b"b": b"~"})
    assert ordered(store) == [b"7"] and ordered(store, below=30) == [b"6", b"4"]
    assert store.read("t", ids_of(b"a", b"d"), LAST).to_pylist() == [b"7", b"~8"]
    write(store, 40, {b"a": b"~"})
    collect(store, 50, 50)
    assert ordered(store) == []  # though there are rows, all of them hidden


def test_a_mask_of_hidden_rows_that_does_not_fit_is_refused(store: Store) -> None:
    keys = pa.array([b"a", b"b"], pa.binary())
    for given, mask in ((keys, np.array([True])), (None, np.array([True, False]))):
        with pytest.raises(DataError, match=r"'t': 2 ids, .* one for each row that has a key"):
            store.write(10, [TableWrite("t", ids(1, 2), values(b"1", b"2"), True, given, mask)])


def row_of(key: bytes) -> bytes:
    """A row of the view below, as an engine packs it: stores that keep columns take it apart."""
    columns = (
        Vec(STRING, pa.array([key.decode()])), Vec(DATE, np.array([len(key)], np.int32)),
        Vec(decimal(12, 2), np.array([-7]), np.array([len(key) % 2], np.uint8)),
    )  # fmt: skip
    packed: bytes = RowCodec([column.type for column in columns]).pack(columns, 1).arrow()[0].as_py()
    return packed


SHAPE = RowShape((Column("city", STRING), Column("day", DATE), Column("total", decimal(12, 2))), (0, 1))


def view(*keys: bytes, shape: RowShape | None = SHAPE, before: pa.BinaryArray | None = None) -> TableWrite:
    """Rows that were not there before, unless it is said what they were."""
    rows, none = values(*map(row_of, keys)), pa.nulls(len(keys), pa.binary())
    return TableWrite("v", ids_of(*keys), rows, True, pa.array(keys, pa.binary()), None, shape, before or none)


def test_a_view_says_what_its_rows_are_made_of(store: Store) -> None:
    assert store.shape("v") is None
    store.write(EPOCH, [view(b"a", b"b")])
    write(store, EPOCH, {b"a": b"1"})
    assert store.shape("v") == SHAPE and store.shape("t") is None
    store.write(EPOCH + 1, [view(b"c", shape=None)])  # whoever does not say it does not mean another one
    assert store.shape("v") == SHAPE
    for other in (RowShape(SHAPE.schema[:2], (0, 1)), RowShape(SHAPE.schema, (0,))):
        with pytest.raises(Contradiction, match=r"'v' holds rows of \(city string, day date, total decimal\(12,2\)\)"):
            store.write(EPOCH + 2, [view(b"d", shape=other)])
    assert ordered(store, table="v") == [row_of(key) for key in (b"a", b"b", b"c")]
    store.drop_tables(["v"])
    assert store.shape("v") is None
    store.write(EPOCH + 3, [view(b"e", shape=RowShape(SHAPE.schema, (2,)))])
    assert store.shape("v") == RowShape(SHAPE.schema, (2,))


def test_what_rows_are_made_of_must_fit_them(store: Store) -> None:
    with pytest.raises(DataError, match=r"'v': rows of 3 columns, of which \[0, 3\] are the key, with keys"):
        store.write(EPOCH, [view(b"a", shape=RowShape(SHAPE.schema, (0, 3)))])
    with pytest.raises(DataError, match=r"are the key, without keys in one write"):
        store.write(EPOCH, [replace(view(b"a"), keys=None)])
    with pytest.raises(DataError, match="'v': 2 ids and 1 previous images in one write"):
        store.write(EPOCH, [view(b"a", b"b", before=values(None))])


def test_a_view_without_a_key_has_one_row(store: Store) -> None:
    row = view(b"", shape=RowShape(SHAPE.schema, ()))
    store.write(EPOCH, [row])
    assert ordered(store, table="v") == [row_of(b"")] == store.read("v", ids_of(b""), LAST).to_pylist()
    store.write(EPOCH + 1, [replace(row, values=values(None), before=row.values)])
    assert ordered(store, table="v") == []
    assert store.read("v", ids_of(b""), EPOCH + 1).to_pylist() == [row_of(b"")]


def test_previous_images_are_given_where_they_are_asked_for(store: Store) -> None:
    """Others have them in their versions, whatever the writer says; what was before can be read either way."""
    first = values(row_of(b"a"), row_of(b"b"))
    store.write(EPOCH, [view(b"a", b"b")])
    gone = replace(view(b"a", b"b", before=first), values=values(None, row_of(b"again")))
    for _ in range(2):  # repeating an epoch finds what was before the epoch
        store.write(EPOCH + 1, [gone])
    assert store.read("v", ids_of(b"a", b"b"), EPOCH + 1).equals(first)
    assert ordered(store, table="v") == [row_of(b"again")]
    if not store.previous_images:
        store.write(EPOCH + 2, [replace(view(b"a"), before=None)])
        return
    with pytest.raises(DataError, match="'v': a write of a view without previous images"):
        store.write(EPOCH + 2, [replace(view(b"a"), before=None)])
    if versions_of(store) > 10:  # who writes both at once has no time to look
        with pytest.raises(Contradiction, match=r"'v', epoch \d+: a row is written that was b'.*' before, here it"):
            store.write(EPOCH + 2, [view(b"a", before=values(row_of(b"a")))])
    assert ordered(store, table="v") == [row_of(b"again")]


@pytest.mark.parametrize("kind", [*KINDS, *HBASE_KINDS])
@pytest.mark.parametrize("seed", range(6))
def test_random_histories_are_as_sorted_in_python(
    kind: str, seed: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Writes, late and repeated ones among them, removals, collections; ranges at every epoch that may be asked for."""
    rng = random.Random(seed)
    parts = [b"", b"\0", b"\0\xff", b"a", b"ab", b"b", b"\xff", b"z" * 300, b"z" * 600, b"z" * 600 + b"q"]
    keys = list({rng.choice(parts) + rng.choice(parts) + bytes([rng.randrange(4)]) for _ in range(60)})
    history: dict[int, dict[bytes, bytes | None]] = {}
    horizon, epoch = 0, EPOCH
    with ExitStack() as stack:
        store = make(kind, tmp_path / "store", stack, request)
        for _ in range(40):
            epoch += rng.randrange(1, 3)
            changed = rng.sample(keys, rng.randrange(1, 9))
            rows = {key: rng.choice([None, None, b"%d" % epoch, b"%d!" % epoch, b"~%d" % epoch]) for key in changed}
            history[epoch] = rows
            write(store, epoch, rows)
            if rng.random() < 0.3:
                late = rng.choice([at for at in history if at > horizon])
                write(store, late, history[late])
            if rng.random() < 0.2:
                horizon = rng.randrange(max(horizon, EPOCH), epoch + 1)
                collect(store, horizon, horizon)
            below = rng.randrange(max(horizon, EPOCH) + 1, epoch + 2)
            low, high = sorted(rng.choice(keys) for _ in range(2))
            wanted = KeyRange(
                rng.choice([low, b""]), rng.choice([high, None]), rng.choice([None, 1, 5]), rng.random() < 0.5
            )
            if _newest_count(history, wanted, below) > versions_of(store):
                with suppress(BelowHorizon):  # it may not have to look at that row
                    assert ordered(store, wanted, below) == _expected(history, wanted, below)
                continue
            assert ordered(store, wanted, below) == _expected(history, wanted, below)


def _newest_count(history: dict[int, dict[bytes, bytes | None]], wanted: KeyRange, below: int) -> int:
    """How many versions a row of this range has from this epoch on, at most."""
    newer = [key for epoch, rows in history.items() if epoch >= below for key in rows]
    return max((newer.count(key) for key in set(newer)), default=0)


def _expected(history: dict[int, dict[bytes, bytes | None]], wanted: KeyRange, below: int) -> list[bytes]:
    state: dict[bytes, bytes | None] = {}
    for epoch in sorted(history):
        if epoch < below:
            state.update(history[epoch])
    live = {key: value for key, value in state.items() if value is not None and not is_hidden(value)}
    found = sorted((key for key in live if key in wanted), reverse=wanted.reverse)
    return [live[key] for key in found][: wanted.limit]


def test_order_survives_a_restart_with_rows_that_were_not_merged(tmp_path: Path) -> None:
    for merge_rows in (1, 10**6):
        path = tmp_path / f"store-{merge_rows}"
        store = LmdbStore(path, merge_rows=merge_rows, collect_pause=0.0)
        write(store, 10, {b"b": b"2", b"a": b"1", b"c" * 600: b"3"})
        write(store, 20, {b"a": None})
        store.close()
        store = LmdbStore(path, merge_rows=merge_rows, collect_pause=0.0)
        assert ordered(store) == [b"2", b"3"] and ordered(store, below=11) == [b"1", b"2", b"3"]
        store.close()


def test_nothing_is_left_of_the_order_of_rows_that_are_gone(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store", merge_rows=1, collect_pause=0.0)
    keys = [b"%d" % number * 200 for number in range(10)]
    write(store, 10, {**dict.fromkeys(keys, b"x"), b"never": b"~", b"nor this": b"~", b"nor that": b"~"})
    write(store, 20, {**dict.fromkeys(keys[1:5], None), **dict.fromkeys(keys[5:], b"~")})
    collect(store, 30, 30)
    assert _places(store) == 1 and ordered(store) == [b"x"]
    write(store, 40, dict.fromkeys(keys[6:8], b"y"))
    write(store, 35, dict.fromkeys(keys[8:], b"~late"))
    collect(store, 45, 30)
    assert _places(store) == 3 and ordered(store) == [b"x", b"y", b"y"]
    store.close()


def _places(store: LmdbStore) -> int:
    with store.environment.reading() as txn:
        return int(txn.stat(store.environment.db["by_key"])["entries"])
