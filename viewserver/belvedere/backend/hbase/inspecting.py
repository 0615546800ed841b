"""A manifest for a table of HBase that nobody described: rows are sampled, and encodings are guessed from their bytes.

A guess is a proposal for a person: bytes do not tell whether eight of them are a long or a double. So a guess is taken
only if it reads all values of the sample, the likelier one first, and the manifest shows examples. What it says is
tried on the sample with the decoder that the log goes through.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from itertools import islice

import numpy as np

from belvedere.backend.hbase.cell_values import read_columns
from belvedere.backend.hbase.cells import Columns
from belvedere.backend.hbase.checks import obstacles, settings_of, warnings
from belvedere.backend.hbase.client import HBase
from belvedere.backend.hbase.descriptors import TableName
from belvedere.backend.hbase.row_keys import KeyPart, RowKeyReader
from belvedere.backend.hbase.rpc_cells import RpcCells
from belvedere.engine.vec import Status
from belvedere.errors import CatalogError
from belvedere.sql.origin import Encoding, Origin, RowKey, StoredColumn
from belvedere.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, Type, decimal

_REGIONS = 20
_MOST_COLUMNS = 100
_DELIMITERS = ("|", "\0", "#", "::", ":", "/", ",", ";", "_", "~", "-")
_EARLY, _LATE = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1000 for year in (1990, 2100))
_SMALL, _LARGE = 1e-6, 1e12
"""Doubles that people store are mostly between; longs that are read as doubles are mostly far below."""
_NUMBER = re.compile(rb"-?(0|[1-9][0-9]{0,17})")
_DECIMAL = re.compile(rb"-?[0-9]{1,18}\.[0-9]{1,10}")
_DAY = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9.]+)?Z?")
_SHOWN = 3


@dataclass(frozen=True)
class Guess:
    """`member`: the name in a cell of JSON."""

    encoding: Encoding
    type: Type
    member: str = ""


@dataclass(frozen=True)
class Sample:
    """`cells`: values by family and qualifier. `regions`: how many were looked at."""

    keys: list[bytes]
    cells: dict[tuple[str, bytes], list[bytes]]
    regions: int


def inspect(hbase: HBase, name: str, rows: int) -> str:
    """The manifest of a table, with what was found as comments. `rows`: how many are sampled, of all regions."""
    table = TableName.parse(name)
    described = hbase.admin.descriptor(table)
    if described is None:
        raise CatalogError(obstacles(hbase.admin, table, [])[0])
    families = [family.name for family in described.families]
    sample = _sample(hbase, table, families, rows)
    if not sample.keys:
        raise CatalogError(
            f"hbase table {str(table)!r} has no rows, so nothing tells what is in it; write the manifest"
        )
    scoped = all(family.replication_scope == 1 for family in described.families)
    found = obstacles(hbase.admin, table, families, permitted=True)
    found += warnings(hbase.admin, int(time.time() * 1000), settings_of)
    return manifest(table, sample, found, scoped)


def _sample(hbase: HBase, table: TableName, families: Sequence[str], rows: int) -> Sample:
    """The first rows of regions that are spread over the table."""
    cells = RpcCells(hbase.regions, hbase.pool)
    regions = hbase.regions.listed(str(table))
    chosen = regions[:: -(-len(regions) // _REGIONS)]
    each = max(1, rows // len(chosen))
    keys: dict[bytes, None] = {}
    found: dict[tuple[str, bytes], list[bytes]] = {}
    for region in chosen:
        for family in families:
            pieces = cells.scan(str(table), region.start, region.stop or None, Columns(family), limit=each)
            for piece in islice(pieces, each):
                keys.update(dict.fromkeys(piece.row.to_pylist()))
                for qualifier, value in zip(piece.qualifier.to_pylist(), piece.value.to_pylist(), strict=True):
                    found.setdefault((family, qualifier), []).append(value)
    return Sample(list(keys), found, len(chosen))


# --- guesses


def guess(values: Sequence[bytes]) -> Guess:
    """What reads all of these cells, the likeliest."""
    given = [value for value in values if value]
    for candidate in (*_texts(given), *_numbers(given)):
        if _reads(candidate, given):
            return candidate
    return Guess(Encoding.RAW, BINARY)


def _texts(values: Sequence[bytes]) -> Iterator[Guess]:
    if not values or not all(map(_is_printable, values)):
        return
    text = Encoding.TEXT
    if all(_NUMBER.fullmatch(value) for value in values):
        yield Guess(text, BIGINT)
    if all(_NUMBER.fullmatch(value) or _DECIMAL.fullmatch(value) for value in values):
        scale = max(len(value.partition(b".")[2]) for value in values)
        yield Guess(text, decimal(min(38, 18 + scale), scale))
    for pattern, type in ((_DAY, DATE), (_MOMENT, TIMESTAMP)):
        if all(pattern.fullmatch(value) for value in values):
            yield Guess(text, type)
    if {value.lower() for value in values} <= {b"true", b"false"}:
        yield Guess(text, BOOLEAN)
    yield Guess(text, STRING)


def _is_printable(value: bytes) -> bool:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return False
    return all(char.isprintable() or char in "\t\n\r" for char in text)


def _numbers(values: Sequence[bytes]) -> Iterator[Guess]:
    sizes = {len(value) for value in values}
    if sizes == {1} and all(value in (b"\0", b"\x01", b"\xff") for value in values):
        yield Guess(Encoding.BOOLEAN, BOOLEAN)
    if sizes == {2}:
        yield Guess(Encoding.SHORT, INT)
    if sizes == {4}:
        if _are_doubles(np.frombuffer(b"".join(values), ">f4").astype(np.float64)):
            yield Guess(Encoding.FLOAT, DOUBLE)
        yield Guess(Encoding.INT, INT)
    if sizes == {8}:
        longs = np.frombuffer(b"".join(values), ">i8")
        if ((longs > _EARLY) & (longs < _LATE)).all():
            yield Guess(Encoding.MILLIS, TIMESTAMP)
        if _are_doubles(np.frombuffer(b"".join(values), ">f8")):
            yield Guess(Encoding.DOUBLE, DOUBLE)
        yield Guess(Encoding.LONG, BIGINT)
    scales = {int.from_bytes(value[:4], "big") for value in values}
    if sizes and min(sizes) > 4 and max(scales) <= 18:
        yield Guess(Encoding.DECIMAL, decimal(38, max(scales)))


def _are_doubles(numbers: np.ndarray) -> bool:
    sizes = np.abs(numbers[numbers != 0])
    return bool(len(sizes) and np.isfinite(sizes).all() and ((sizes > _SMALL) & (sizes < _LARGE)).all())


def _reads(candidate: Guess, values: Sequence[bytes]) -> bool:
    stored = StoredColumn(candidate.encoding, "f", "q", member=tuple(filter(None, [candidate.member])))
    (vec,) = read_columns(*_block(values), [(stored, candidate.type)])
    return vec.status is None or bool((vec.status <= Status.VALUE).all())


def _block(values: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    size = np.array([len(value) for value in values], np.int64)
    return np.frombuffer(b"".join(values) + b"\0", np.uint8).copy(), np.cumsum(size) - size, size


def members(values: Sequence[bytes]) -> list[Guess]:
    """Of cells that are all objects of JSON: their members that are no lists or objects."""
    try:
        objects = [json.loads(value, parse_float=Decimal) for value in values if value]
    except (ValueError, RecursionError, InvalidOperation):
        return []
    if not objects or not all(isinstance(one, dict) for one in objects):
        return []
    found = []
    for name in dict.fromkeys(name for one in objects for name in one):
        held = [one[name] for one in objects if one.get(name) is not None]
        type = _type_of_member(held)
        if type is not None and "." not in name and name:
            found.append(Guess(Encoding.JSON, type, name))
    return [one for one in found if _reads(one, values)]


def _type_of_member(values: Sequence[object]) -> Type | None:
    if not values:
        return None
    if all(isinstance(value, bool) for value in values):
        return BOOLEAN
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return BIGINT
    if all(isinstance(value, (int, Decimal)) and not isinstance(value, bool) for value in values):
        return DOUBLE
    return STRING if all(isinstance(value, str) for value in values) else None


def guess_key(keys: Sequence[bytes]) -> tuple[RowKey, list[tuple[StoredColumn, Type]]]:
    """The parts of row keys. What reads all of the sample, those with more parts first."""
    for form, parts in _forms(keys):
        stored = tuple(one for one, _ in parts)
        reader = RowKeyReader(Origin("", stored, row_key=form), [KeyPart("", type, one) for one, type in parts])
        if reader.read(*_block(keys))[1].all():
            return form, parts
    return RowKey(), [(StoredColumn(Encoding.RAW), BINARY)]


def _forms(keys: Sequence[bytes]) -> Iterator[tuple[RowKey, list[tuple[StoredColumn, Type]]]]:
    ordered = _ordered_parts(keys[0])
    if ordered:
        yield RowKey(), [(StoredColumn(Encoding.ORDERED), type) for type in ordered]
    for mark in _DELIMITERS:
        counts = {key.count(mark.encode()) for key in keys}
        if len(counts) != 1 or counts == {0}:
            continue
        columns = list(zip(*(key.split(mark.encode()) for key in keys), strict=True))
        if all(_is_printable(part) for column in columns for part in column):
            yield RowKey(delimiter=mark), [_text_part(column) for column in columns]
    if all(map(_is_printable, keys)):
        yield RowKey(), [_text_part(keys)]
        yield RowKey(), [(StoredColumn(Encoding.TEXT), STRING)]
    sizes = {len(key) for key in keys}
    if sizes == {8}:
        yield RowKey(), [(StoredColumn(Encoding.LONG), BIGINT)]
    if sizes == {4}:
        yield RowKey(), [(StoredColumn(Encoding.INT), INT)]


def _text_part(values: Sequence[bytes]) -> tuple[StoredColumn, Type]:
    type = BIGINT if all(_NUMBER.fullmatch(value) for value in values) else STRING
    return StoredColumn(Encoding.TEXT), type


def _ordered_parts(key: bytes) -> list[Type]:
    """The types of the parts of a key in the form of OrderedBytes; none if it has another."""
    found, at = [], 0
    while at < len(key):
        known = {0x2B: (INT, 5), 0x2C: (BIGINT, 9), 0x31: (DOUBLE, 9), 0x34: (STRING, 0)}.get(key[at])
        if known is None:
            return []
        type, size = known
        at = at + size if size else key.find(b"\0", at) + 1 or len(key) + 1
        found.append(type)
    return found if at == len(key) else []


# --- the manifest


def manifest(table: TableName, sample: Sample, remarks: Sequence[str], scoped: bool) -> str:
    """`scoped`: its changes are in the log for others already."""
    form, parts = guess_key(sample.keys)
    names = _Names()
    lines: list[str] = []
    key = [names.new("id" if len(parts) == 1 else f"key{number}") for number in range(1, len(parts) + 1)]
    for name, (stored, type) in zip(key, parts, strict=True):
        lines.append(_line({"name": name, "type": str(type), "encoding": stored.encoding.value}, []))
    lines[0] += f"    # such as {_examples(sample.keys)}"
    left_out = []
    for (family, qualifier), values in sorted(sample.cells.items()):
        if len(lines) >= _MOST_COLUMNS or not _is_printable(qualifier) or qualifier == b"*":
            left_out.append(f"{family}:{_shown(qualifier)}")
            continue
        cell = f"{family}:{qualifier.decode()}"
        for one in members(values) or [guess(values)]:
            fields = {
                "name": names.new(one.member or qualifier.decode() or family, family),
                "type": str(one.type),
                "cell": cell,
                "encoding": one.encoding.value,
            }
            lines.append(_line(fields | ({"member": one.member} if one.member else {}), values))
    said = [
        f"{len(sample.keys)} rows of {sample.regions} regions were read. Encodings are guesses that fit all of them:"
    ]
    said.append("bytes do not tell what they mean, so look at the examples before it is applied.")
    said += [f"To look at: {one}" for one in remarks]
    said += [f"Left out: cells {', '.join(left_out[:_SHOWN])} and such ({len(left_out)} in all)"] if left_out else []
    where: dict[str, object] = {"table": str(table)}
    if not scoped:
        said.append(
            "Its changes are not in the log for others yet; setReplicationScope permits Belvedere to change that."
        )
        where["setReplicationScope"] = True
    if form.delimiter:
        where["rowKey"] = {"delimiter": form.delimiter}
    return "\n".join(
        [
            *(f"# {one}" for one in said),
            "apiVersion: belvedere.dev/v1alpha1",
            "kind: BaseTable",
            f"metadata: {{name: {_resource(table.name)}}}",
            "spec:",
            f"  hbase: {json.dumps(where)}",
            "  columns:",
            *lines,
            f"  key: [{', '.join(key)}]",
            "",
        ]
    )


def _line(fields: dict[str, str], values: Sequence[bytes]) -> str:
    body = ", ".join(f"{name}: {json.dumps(value)}" for name, value in fields.items())
    return f"    - {{{body}}}" + (f"    # such as {_examples(values)}" if values else "")


def _examples(values: Sequence[bytes]) -> str:
    return ", ".join(map(_shown, list(dict.fromkeys(values))[:_SHOWN]))


def _shown(value: bytes) -> str:
    """On one line of a comment, as the HBase shell writes bytes."""
    text = "".join(chr(byte) if 32 <= byte < 127 else f"\\x{byte:02X}" for byte in value[:24])
    return text + ("..." if len(value) > 24 else "")


class _Names:
    """Names in SQL, each once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def new(self, wanted: str, family: str = "") -> str:
        plain = re.sub("[^a-z0-9_]+", "_", wanted.lower()).strip("_") or "column"
        plain = plain if not plain[0].isdigit() else f"c{plain}"
        options = [plain, f"{family}_{plain}".lower() if family else plain]
        options += [f"{plain}_{number}" for number in range(2, len(self._taken) + 3)]
        name = next(option for option in options if option not in self._taken)
        self._taken.add(name)
        return name


def _resource(name: str) -> str:
    """A name for Kubernetes, that is one in SQL as well."""
    return re.sub("[^a-z0-9-]+", "-", name.lower()).strip("-") or "table"
