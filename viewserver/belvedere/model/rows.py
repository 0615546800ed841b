"""Rows as users give them, to columns as the engine takes them; what does not fit is named.

Dicts, lists of dicts, Arrow, pandas and polars are accepted. Whole columns are converted at once; only if that
fails is the row at fault looked for, so that good data is fast and bad data is explained. Nothing is written unless
all of it fits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.engine.delta import Changes
from belvedere.engine.vec import Vec, nulls
from belvedere.errors import DataError
from belvedere.sql.catalog import TableDef
from belvedere.types import Column, Kind, Type

MAX_VALUE_BYTES = 256 << 20
"""The longest string or binary value."""
_MAX_COLUMN_BYTES = (1 << 31) - 1
_QUOTED = 60

_EXACT: dict[Kind, frozenset[type]] = {
    Kind.BOOLEAN: frozenset({bool, type(None)}),
    Kind.INT: frozenset({int, type(None)}),
    Kind.BIGINT: frozenset({int, type(None)}),
    Kind.DOUBLE: frozenset({float, type(None)}),
    Kind.DECIMAL: frozenset({Decimal, type(None)}),
    Kind.STRING: frozenset({str, type(None)}),
    Kind.BINARY: frozenset({bytes, type(None)}),
    Kind.DATE: frozenset({date, type(None)}),
    Kind.TIMESTAMP: frozenset({datetime, type(None)}),
}
"""Python types which Arrow converts as we mean it."""

_ALLOWED = {
    Kind.BOOLEAN: "true or false",
    Kind.INT: f"an integer from {-(2**31)} to {2**31 - 1}",
    Kind.BIGINT: f"an integer from {-(2**63)} to {2**63 - 1}",
    Kind.DOUBLE: "a number",
    Kind.STRING: "text",
    Kind.BINARY: "bytes",
    Kind.DATE: "a date or 'YYYY-MM-DD'",
    Kind.TIMESTAMP: "a datetime or ISO 8601 text, years 1 to 9999",
}


class Misfit(ValueError):
    """A value that does not fit; the text says what is allowed."""


def allowed(type: Type) -> str:
    """What a column takes, for messages."""
    if type.kind is Kind.DECIMAL:
        whole = type.precision - type.scale
        return f"a number of at most {whole} digits before and {type.scale} after the point (Decimal, int or text)"
    return _ALLOWED[type.kind]


def quote(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}… ({len(text)} characters)"


def fit(value: Any, type: Type) -> Any:
    """One value in the Python form that Arrow takes for the type; raises Misfit."""
    if value is None:
        return None
    if isinstance(value, np.generic):
        value = value.item()
    try:
        out = _FIT[type.kind](value, type)
    except (ValueError, TypeError, OverflowError, ArithmeticError) as error:
        raise Misfit(str(error)) from error
    return out


def _fit_boolean(value: Any, type: Type) -> bool:
    if not isinstance(value, bool):
        raise Misfit("no boolean")
    return value


def _fit_integer(value: Any, type: Type) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Misfit("no integer")
    bits = 31 if type.kind is Kind.INT else 63
    if not -(1 << bits) <= value < 1 << bits:
        raise Misfit("out of range")
    return value


def _fit_double(value: Any, type: Type) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise Misfit("no number")
    return float(value)


def _fit_decimal(value: Any, type: Type) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        raise Misfit("no number")
    try:
        number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    except InvalidOperation as error:
        raise Misfit("no number") from error
    if not number.is_finite():
        raise Misfit("not finite")
    with localcontext() as context:
        context.prec = 100
        scaled = number.quantize(Decimal(1).scaleb(-type.scale))
    if scaled != number or abs(scaled) >= Decimal(10) ** (type.precision - type.scale):
        raise Misfit("too many digits")
    return scaled


def _fit_string(value: Any, type: Type) -> str:
    if not isinstance(value, str):
        raise Misfit("no text")
    if len(value.encode()) > MAX_VALUE_BYTES:
        raise Misfit(f"longer than {MAX_VALUE_BYTES >> 20} MiB")
    return value


def _fit_binary(value: Any, type: Type) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise Misfit("no bytes")
    if len(value) > MAX_VALUE_BYTES:
        raise Misfit(f"longer than {MAX_VALUE_BYTES >> 20} MiB")
    return bytes(value)


def _fit_date(value: Any, type: Type) -> date:
    if isinstance(value, str):
        return date.fromisoformat(value)
    if isinstance(value, datetime):
        if value.time() != datetime.min.time():
            raise Misfit("has a time of day")
        return value.date()
    if not isinstance(value, date):
        raise Misfit("no date")
    return value


def _fit_timestamp(value: Any, type: Type) -> datetime:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    elif isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime):
        raise Misfit("no datetime")
    return value.astimezone(UTC) if value.tzinfo is not None else value.replace(tzinfo=UTC)


_FIT = {
    Kind.BOOLEAN: _fit_boolean,
    Kind.INT: _fit_integer,
    Kind.BIGINT: _fit_integer,
    Kind.DOUBLE: _fit_double,
    Kind.DECIMAL: _fit_decimal,
    Kind.STRING: _fit_string,
    Kind.BINARY: _fit_binary,
    Kind.DATE: _fit_date,
    Kind.TIMESTAMP: _fit_timestamp,
}


def _misfit(owner: str, column: Column, row: int, value: object) -> DataError:
    return DataError(
        f"{owner}, column {column.name!r} ({column.type}), row {row}: {quote(value)} does not fit; "
        f"allowed is {allowed(column.type)}; nothing was written"
    )


def from_python(values: Sequence[Any], column: Column, owner: str) -> Vec:
    """A column of Python values."""
    type = column.type
    if set(map(_type, values)) <= _EXACT[type.kind]:
        try:
            return Vec.from_arrow(pa.array(values, type.arrow), type)
        except (pa.ArrowException, ValueError, OverflowError, UnicodeError):
            # falls through to the row that is at fault
            pass
    fitted = []
    for row, value in enumerate(values):
        try:
            fitted.append(fit(value, type))
        except Misfit as error:
            raise _misfit(owner, column, row, value) from error
    try:
        array = pa.array(fitted, type.arrow)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise DataError(f"{owner}, column {column.name!r} ({type}): {error}; nothing was written") from error
    if isinstance(array, pa.ChunkedArray):
        raise _too_large(owner, column)
    return Vec.from_arrow(array, type)


_type = type


def _too_large(owner: str, column: Column) -> DataError:
    return DataError(
        f"{owner}, column {column.name!r}: the values of one call hold more than 2 GiB; write fewer rows at once"
    )


def from_arrow(array: pa.Array | pa.ChunkedArray, column: Column, owner: str) -> Vec:
    """A column given as Arrow: as it is where the type is the same, else converted without losing anything."""
    type = column.type
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
        if isinstance(array, pa.ChunkedArray):
            raise _too_large(owner, column)
    if array.type != type.arrow:
        array = _convert(array, column, owner)
    if type.varlen and array.nbytes > MAX_VALUE_BYTES:
        longest = pc.max(pc.binary_length(array)).as_py() or 0
        if longest > MAX_VALUE_BYTES:
            row = pc.index(pc.binary_length(array), longest).as_py()
            raise DataError(
                f"{owner}, column {column.name!r}, row {row}: a value of {longest} bytes; at most "
                f"{MAX_VALUE_BYTES >> 20} MiB are allowed; nothing was written"
            )
    return Vec.from_arrow(array, type)


def _convertible(given: pa.DataType, kind: Kind) -> bool:
    """Whether a cast by Arrow means the same as what we do value by value."""
    number, types = pa.types.is_integer(given), pa.types
    allowed = {
        Kind.INT: number,
        Kind.BIGINT: number,
        Kind.DOUBLE: number or types.is_floating(given) or types.is_decimal(given),
        Kind.DECIMAL: number or types.is_decimal(given),
        Kind.STRING: types.is_large_string(given) or given == pa.string_view(),
        Kind.BINARY: types.is_large_binary(given) or types.is_fixed_size_binary(given),
        Kind.DATE: types.is_date(given),
        Kind.TIMESTAMP: types.is_timestamp(given) or types.is_date(given),
    }
    return bool(types.is_null(given) or allowed.get(kind, False))


def _convert(array: pa.Array, column: Column, owner: str) -> pa.Array:
    type = column.type
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
        if array.type == type.arrow:
            return array
    if _convertible(array.type, type.kind):
        try:
            if type.kind is Kind.TIMESTAMP and pa.types.is_timestamp(array.type) and array.type.tz is None:
                return array.cast(pa.timestamp("us")).cast(type.arrow)
            if type.kind is Kind.DECIMAL and pa.types.is_integer(array.type):
                array = array.cast(pa.decimal128(38, 0))
            return array.cast(type.arrow)
        except pa.ArrowException:
            # one of the values does not fit: the slow way finds it, and gives the reason
            pass
    vec = from_python(array.to_pylist(), column, owner)
    return vec.to_arrow()


class GivenRows:
    """Reads rows for one table; made once per table definition."""

    def __init__(self, table: TableDef):
        self.table = table
        self.owner = f"table {table.name!r}"
        self._by_name = {c.name: i for i, c in enumerate(table.columns)}
        self._by_lower = {c.name.lower(): i for i, c in enumerate(table.columns)}
        self._key = table.key_positions

    def position(self, name: object) -> int:
        """Of a column, by name."""
        found = self._by_name.get(name) if isinstance(name, str) else None
        if found is None and isinstance(name, str):
            found = self._by_lower.get(name.lower())
        if found is None:
            known = ", ".join(c.name for c in self.table.columns)
            raise DataError(f"{self.owner} has no column {name!r}; it has {known}; nothing was written")
        return found

    def puts(self, rows: Any) -> Changes | None:
        """Changes of a put, None if there is no row. Timestamps are zero."""
        columns, masks, count = self._columns(rows)
        return self._changes(columns, masks, count, None) if count else None

    def mixed(self, rows: Any, deletes: Any) -> Changes | None:
        """Puts and deletes in one order: of the rows where `deletes` is true only the key counts."""
        columns, masks, count = self._columns(rows)
        if not count:
            return None
        delete = np.asarray(deletes)
        if delete.dtype != np.bool_ or delete.shape != (count,):
            raise DataError(
                f"{self.owner}: deletes must be {count} booleans, one per row; "
                f"found {delete.dtype} of shape {delete.shape}"
            )
        return self._changes(columns, masks, count, delete if delete.any() else None)

    def deletes(self, keys: Any) -> Changes | None:
        """Changes of a delete: keys as scalars, tuples or dicts, or tables with the key columns."""
        if not is_frame(keys):
            if isinstance(keys, Mapping) or not isinstance(keys, Sequence) or isinstance(keys, (str, bytes, tuple)):
                keys = [keys]
            keys = [self._key_dict(k, row) for row, k in enumerate(keys)]
        columns, masks, count = self._columns(keys)
        extra = sorted(set(columns) - set(self._key))
        if extra:
            names = ", ".join(self.table.columns[i].name for i in extra)
            raise DataError(f"{self.owner}: a delete takes keys only, found also {names}")
        return self._changes(columns, masks, count, np.ones(count, np.bool_)) if count else None

    def _key_dict(self, key: Any, row: int) -> Mapping[str, Any]:
        if isinstance(key, Mapping):
            return key
        values = key if isinstance(key, tuple) else tuple(key) if isinstance(key, list) else (key,)
        if len(values) != len(self._key):
            raise DataError(
                f"{self.owner}, row {row}: the key is ({', '.join(self.table.key)}), "
                f"{len(self._key)} values are needed, {len(values)} were given"
            )
        return dict(zip(self.table.key, values, strict=True))

    def _columns(self, rows: Any) -> tuple[dict[int, Vec], dict[int, np.ndarray], int]:
        if is_frame(rows):
            table = _to_arrow(rows, self.owner)
            found: dict[int, Vec] = {}
            for name, array in zip(table.schema.names, table.columns, strict=True):
                at = self.position(name)
                if at in found:
                    raise DataError(f"{self.owner}: column {self.table.columns[at].name!r} is given twice")
                found[at] = from_arrow(array, self.table.columns[at], self.owner)
            return found, {}, table.num_rows
        if isinstance(rows, Mapping):
            rows = [rows]
        elif not isinstance(rows, (list, tuple)):
            try:
                rows = list(rows)
            except TypeError as error:
                raise DataError(
                    f"{self.owner}: rows are a dict, a list of dicts, or an Arrow, pandas or polars table; "
                    f"found {quote(rows)}"
                ) from error
        return self._from_dicts(rows)

    def _from_dicts(self, rows: Sequence[Any]) -> tuple[dict[int, Vec], dict[int, np.ndarray], int]:
        if not rows:
            return {}, {}, 0
        for at, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise DataError(f"{self.owner}, row {at}: a row is a dict of columns; found {quote(row)}")
        names = rows[0].keys()
        columns: dict[int, Vec] = {}
        masks: dict[int, np.ndarray] = {}
        uniform = len(rows) == 1 or all(row.keys() == names for row in rows)
        everything = list(names) if uniform else list(dict.fromkeys(name for row in rows for name in row))
        for name in everything:
            at = self.position(name)
            if at in columns:
                raise DataError(f"{self.owner}: column {self.table.columns[at].name!r} is given twice")
            values = [row[name] for row in rows] if uniform else [row.get(name) for row in rows]
            columns[at] = from_python(values, self.table.columns[at], self.owner)
            if not uniform:
                mask = np.fromiter((name in row for row in rows), np.bool_, len(rows))
                if not mask.all():
                    masks[at] = mask
        return columns, masks, len(rows)

    def _changes(
        self, columns: dict[int, Vec], masks: dict[int, np.ndarray], count: int, delete: np.ndarray | None
    ) -> Changes:
        self._check_keys(columns, masks)
        out: list[Vec] = []
        present: list[np.ndarray | None] = []
        for at, column in enumerate(self.table.columns):
            vec = columns.get(at)
            mask = masks.get(at)
            if vec is None:
                out.append(nulls(column.type, count))
                present.append(np.zeros(count, np.bool_))
                continue
            if not column.nullable and at not in self._key:
                self._check_nulls(vec, column, mask, delete)
            out.append(vec)
            present.append(mask)
        return Changes(tuple(out), tuple(present), delete, np.zeros(count, np.int64))

    def _check_keys(self, columns: dict[int, Vec], masks: dict[int, np.ndarray]) -> None:
        for at in self._key:
            column = self.table.columns[at]
            vec = columns.get(at)
            if vec is None or at in masks:
                row = 0 if vec is None else int(np.flatnonzero(~masks[at])[0])
                raise DataError(
                    f"{self.owner}, row {row}: key column {column.name!r} is missing; the key is "
                    f"({', '.join(self.table.key)}); nothing was written"
                )
            if vec.status is not None and not vec.valid.all():
                row = int(np.flatnonzero(~vec.valid)[0])
                raise DataError(
                    f"{self.owner}, column {column.name!r}, row {row}: NULL in the primary key; nothing was written"
                )
            if vec.type.kind is Kind.DOUBLE and np.isnan(vec.data).any():
                row = int(np.flatnonzero(np.isnan(vec.data))[0])
                raise DataError(
                    f"{self.owner}, column {column.name!r}, row {row}: NaN in the primary key; allowed is any other "
                    "number; nothing was written"
                )

    def _check_nulls(self, vec: Vec, column: Column, mask: np.ndarray | None, delete: np.ndarray | None) -> None:
        if vec.status is None:
            return
        wrong = ~vec.valid
        if mask is not None:
            wrong &= mask
        if delete is not None:
            wrong &= ~delete
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise DataError(
                f"{self.owner}, column {column.name!r}, row {row}: NULL in a column declared NOT NULL; "
                "nothing was written"
            )


def is_frame(rows: Any) -> bool:
    """Whether rows come as a table of columns rather than as dicts."""
    return (
        isinstance(rows, (pa.Table, pa.RecordBatch))
        or hasattr(rows, "__arrow_c_stream__")
        or (hasattr(rows, "to_numpy") and hasattr(rows, "columns"))
    )


def _to_arrow(rows: Any, owner: str) -> pa.Table | pa.RecordBatch:
    if isinstance(rows, (pa.Table, pa.RecordBatch)):
        return rows
    try:
        if type(rows).__module__.startswith("pandas"):
            return pa.Table.from_pandas(rows, preserve_index=False)
        return pa.table(rows)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"{owner}: the table given cannot be read as Arrow: {error}; nothing was written") from error


def timestamps(ts: Any, count: int) -> np.ndarray:
    """Cell timestamps given by the user: microseconds or a datetime for all rows, or one per row."""

    def one(value: Any) -> int:
        if isinstance(value, datetime):
            aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            return math.floor(aware.timestamp()) * 1_000_000 + aware.microsecond
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
            raise DataError(
                f"ts: {quote(value)} is no timestamp; give microseconds since 1970 as an int, or a datetime"
            )
        if not -(1 << 62) < value < 1 << 62:
            raise DataError(f"ts: {value} is out of range; give microseconds since 1970")
        return int(value)

    if isinstance(ts, (int, datetime, np.integer)):
        return np.full(count, one(ts), np.int64)
    values = [one(v) for v in ts]
    if len(values) != count:
        raise DataError(f"ts: {len(values)} timestamps were given for {count} rows")
    return np.array(values, np.int64)
