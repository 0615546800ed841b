"""Files of rows (CSV, JSON lines, Parquet) as a stream of typed chunks, with line numbers for what is broken.

CSV is read with Python's own reader because it knows the physical line of every record, also when quoted fields span
lines; the values are then converted column by column. A record that cannot be used is reported and the rest goes on.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from belvedere.cli.values import convert, key_problems
from belvedere.errors import DataError
from belvedere.sql.catalog import TableDef
from belvedere.types import Column, Kind

FORMATS = {".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
LARGEST_FIELD = 256 << 20


@dataclass(frozen=True, slots=True)
class Problem:
    """A row that was not loaded: its line (Parquet: row) from 1, and the reason."""

    line: int
    reason: str


@dataclass(slots=True)
class FileChunk:
    """Some rows of a file: good ones (Arrow, or dicts where rows have different columns) and problems.

    `position` is how far into the file (bytes, or rows for Parquet) the chunk ends; `lines` are those of the good rows.
    """

    rows: pa.Table | list[dict[str, Any]]
    lines: list[int]
    problems: list[Problem] = field(default_factory=list)
    position: int = 0

    def __len__(self) -> int:
        return len(self.lines)

    def part(self, start: int, stop: int) -> pa.Table | list[dict[str, Any]]:
        return self.rows[start:stop] if isinstance(self.rows, list) else self.rows.slice(start, stop - start)


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How to read: rows per chunk, CSV delimiter, which text means NULL, whether unknown columns are passed over."""

    chunk_rows: int = 20_000
    delimiter: str = ","
    null: str = ""
    header: bool = True
    ignore_extra: bool = False


def format_of(path: Path) -> str:
    """csv, jsonl or parquet by the file's suffix (before .gz); raises DataError when it says nothing."""
    suffixes = [s.lower() for s in path.suffixes if s.lower() != ".gz"]
    if not suffixes or suffixes[-1] not in FORMATS:
        raise DataError(f"cannot tell the format of {path.name} by its name; say --format csv, jsonl or parquet")
    return FORMATS[suffixes[-1]]


def read(path: Path, format: str, table: TableDef, options: FileOptions) -> Iterator[FileChunk]:
    """The file's rows as chunks for `table`."""
    if format == "parquet":
        yield from _parquet(path, table, options)
        return
    with path.open("rb") as raw:
        packed = gzip.GzipFile(fileobj=raw) if path.suffix.lower() == ".gz" else raw
        text = io.TextIOWrapper(packed, encoding="utf-8-sig", errors="surrogateescape", newline="")
        yield from (_csv if format == "csv" else _jsonl)(text, raw, table, options)


def size_of(path: Path, format: str) -> int:
    """What `FileChunk.position` runs up to."""
    return int(pq.read_metadata(path).num_rows) if format == "parquet" else path.stat().st_size


def _columns(names: Sequence[str], table: TableDef, options: FileOptions, where: str) -> list[Column | None]:
    """The table's column for each column of a file; None for one to pass over."""
    known = {c.name.lower(): c for c in table.columns}
    extra = [n for n in names if n.lower() not in known]
    if extra and not options.ignore_extra:
        raise DataError(
            f"{where}: table {table.name} has no column {', '.join(map(repr, extra))}; it has "
            f"{', '.join(c.name for c in table.columns)} (--ignore-extra passes over unknown columns)"
        )
    found = [known.get(n.lower()) for n in names]
    used = [c.name for c in found if c is not None]
    if len(set(used)) < len(used):
        raise DataError(f"{where}: a column appears twice among {', '.join(used)}")
    if missing := [k for k in table.key if k not in used]:
        raise DataError(f"{where}: the key of table {table.name} needs column {', '.join(map(repr, missing))}")
    return found


def _typed(
    columns: list[tuple[Column, Any]], table: TableDef, lines: list[int], problems: list[Problem], position: int
) -> FileChunk:
    """Convert columns, take broken rows out, and say why."""
    arrays: list[pa.Array] = []
    broken: dict[int, str] = {}
    for column, values in columns:
        array, reasons = convert(values, column.type)
        if column.name in table.key:
            reasons = key_problems(array, column) | reasons
        arrays.append(array)
        for i, reason in reasons.items():
            broken.setdefault(i, reason if reason.startswith("key column") else f"column {column.name}: {reason}")
    rows = pa.table(arrays, names=[c.name for c, _ in columns])
    if broken:
        good = [i for i in range(len(lines)) if i not in broken]
        problems = problems + [Problem(lines[i], reason) for i, reason in broken.items()]
        rows, lines = rows.take(pa.array(good, pa.int64())), [lines[i] for i in good]
    return FileChunk(rows, lines, sorted(problems, key=lambda p: p.line), position)


def _csv(text: TextIO, raw: BinaryIO, table: TableDef, options: FileOptions) -> Iterator[FileChunk]:
    csv.field_size_limit(LARGEST_FIELD)
    reader = csv.reader(text, delimiter=options.delimiter, strict=True)
    names = [c.name for c in table.columns]
    if options.header:
        names = [n.strip() for n in next(reader, [])]
        if not names:
            return
    columns = _columns(names, table, options, "the header" if options.header else "the file")
    width = len(columns)
    records: list[list[str]] = []
    lines: list[int] = []
    problems: list[Problem] = []

    def chunk() -> FileChunk:
        by_column = list(zip(*records, strict=True)) if records else [()] * width
        wanted = [
            (c, [None if v == options.null else v for v in values])
            for c, values in zip(columns, by_column, strict=True)
            if c is not None
        ]
        return _typed(wanted, table, list(lines), list(problems), raw.tell())

    while True:
        first = reader.line_num + 1
        try:
            record = next(reader, None)
        except csv.Error as error:
            problems.append(Problem(first, f"not CSV: {error}"))
            continue
        if record is None:
            break
        if len(record) == width:
            records.append(record)
            lines.append(first)
        elif record:  # an empty line is nothing, not a broken row
            problems.append(Problem(first, f"{len(record)} fields, the header has {width}"))
        if len(records) >= options.chunk_rows:
            yield chunk()
            records, lines, problems = [], [], []
    yield chunk()


def _jsonl(text: TextIO, raw: BinaryIO, table: TableDef, options: FileOptions) -> Iterator[FileChunk]:
    known = {c.name.lower(): c.name for c in table.columns}
    # Decimals must not pass through binary floating point on their way in.
    exact = any(c.type.kind is Kind.DECIMAL for c in table.columns)
    decoder = json.JSONDecoder(parse_float=Decimal if exact else None)
    records: list[dict[str, Any]] = []
    lines: list[int] = []
    problems: list[Problem] = []
    for number, line in enumerate(text, 1):
        if not line.strip():
            continue
        try:
            record = _record(decoder.decode(line.strip()), known, table, options)
        except ValueError as error:
            reason = f"not JSON: {error.msg}" if isinstance(error, json.JSONDecodeError) else str(error)
            problems.append(Problem(number, reason))
            continue
        records.append(record)
        lines.append(number)
        if len(records) >= options.chunk_rows:
            yield _from_records(records, table, lines, problems, raw.tell())
            records, lines, problems = [], [], []
    yield _from_records(records, table, lines, problems, raw.tell())


def _record(found: Any, known: dict[str, str], table: TableDef, options: FileOptions) -> dict[str, Any]:
    """One JSON object with the table's own column names; ValueError says what is wrong."""
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    extra = [n for n in found if n.lower() not in known]
    if extra and not options.ignore_extra:
        raise ValueError(f"table {table.name} has no column {', '.join(map(repr, extra))}")
    record = {known[n.lower()]: v for n, v in found.items() if n.lower() in known}
    if missing := [k for k in table.key if k not in record]:
        raise ValueError(f"key column {', '.join(missing)} is missing")
    return record


def _from_records(
    records: list[dict[str, Any]], table: TableDef, lines: list[int], problems: list[Problem], position: int
) -> FileChunk:
    present = [c for c in table.columns if any(c.name in r for r in records)]
    columns = [(c, [r.get(c.name) for r in records]) for c in present]
    chunk = _typed(columns, table, list(lines), list(problems), position)
    if all(len(r) == len(present) for r in records):
        return chunk
    # A missing column means "unchanged", which a rectangle cannot say: rows keep their own sets of columns.
    names = {line: set(r) for line, r in zip(lines, records, strict=True)}
    assert isinstance(chunk.rows, pa.Table)
    typed = chunk.rows.to_pylist()
    chunk.rows = [
        {name: value for name, value in row.items() if name in names[line]}
        for line, row in zip(chunk.lines, typed, strict=True)
    ]
    return chunk


def _parquet(path: Path, table: TableDef, options: FileOptions) -> Iterator[FileChunk]:
    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise DataError(f"{path} is not a Parquet file: {error}") from None
    with file:
        columns = _columns(file.schema_arrow.names, table, options, str(path))
        done = 0
        for batch in file.iter_batches(batch_size=options.chunk_rows):
            lines = list(range(done + 1, done + batch.num_rows + 1))
            done += batch.num_rows
            wanted = [(c, batch.column(i)) for i, c in enumerate(columns) if c is not None]
            yield _typed(wanted, table, lines, [], done)
