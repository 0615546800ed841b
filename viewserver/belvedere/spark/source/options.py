"""Options of `format("belvedere")`, checked: one that is unknown or does not fit is refused by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from belvedere.errors import DataError
from belvedere.spark.engines import UNTOLD


class Content(Enum):
    """What of a relation is read."""

    ROWS = "rows"
    DELTA = "delta"
    STATE = "state"
    QUARANTINE = "quarantine"
    CHANGES = "changes"


@dataclass(frozen=True)
class SourceOptions:
    """`database`: a directory, belvedere://… of a pool. `relation`: a table
    or view; with the content STATE a table of the pool's store."""

    database: str
    relation: str
    content: Content = Content.ROWS
    as_of: int | None = None
    partitions: int = 8
    buckets: tuple[int, int] | None = None
    prefix: tuple[Any, ...] = ()
    start: tuple[Any, ...] = ()
    stop: tuple[Any, ...] = ()
    starting: str = "now"
    job: str = ""
    deletes: str = ""
    pushdown: bool = False
    """Whether Spark may pass on filters; see `reader.PushingReader` for why it may not unless it is told so."""
    files: Mapping[str, str] = field(default_factory=dict)
    copy: str = ""
    """A directory with rows of one moment (`copies.py`), instead of the database's."""
    engine: int = UNTOLD
    """That of the pool, which each process that reads it must have."""

    @property
    def embedded(self) -> bool:
        return "://" not in self.database


_FILES = ("certificate", "key", "authority", "server_name")
_KNOWN = {
    "database", "relation", "path", "content", "asof", "partitions", "buckets", "prefix", "start", "stop",
    "starting", "job", "deletes", "pushdown", "copy", "engine",
    *_FILES, "checkpointlocation", "queryname",  # which Spark passes on to sinks of streams
}  # fmt: skip
_SHOWN = (
    "database, relation, content, asOf, partitions, buckets, prefix, start, stop, pushdown, starting, job, deletes, "
    "certificate, key, authority, server_name"
)


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """What a user gave. Names are not sensitive to case, as everywhere in Spark."""
    options = {name.lower(): value for name, value in given.items()}
    unknown = sorted(set(options) - _KNOWN)
    if unknown:
        raise DataError(f"format 'belvedere' has no option {unknown[0]!r}; options are {_SHOWN}")
    database, relation = options.get("database", ""), options.get("relation") or options.get("path", "")
    if not database:
        raise DataError(
            "format 'belvedere' needs the option 'database': a directory, or belvedere://host:port of a pool"
        )
    if not relation:
        raise DataError("format 'belvedere' needs a table or view: load('orders'), save('orders') or option 'relation'")
    try:
        content = Content(options.get("content", "rows"))
    except ValueError as error:
        allowed = ", ".join(c.value for c in Content)
        raise DataError(f"option 'content' is one of {allowed}; found {options['content']!r}") from error
    return SourceOptions(
        database,
        relation,
        content,
        _number(options, "asof", 0),
        _number(options, "partitions", 1) or SourceOptions.partitions,
        _range(options.get("buckets", "")),
        _key(options, "prefix"),
        _key(options, "start"),
        _key(options, "stop"),
        options.get("starting", "now"),
        options.get("job", ""),
        options.get("deletes", ""),
        _boolean(options, "pushdown"),
        {name: options[name] for name in _FILES if name in options},
        options.get("copy", ""),
        _number(options, "engine", 0) or UNTOLD,
    )


def _number(options: Mapping[str, str], name: str, least: int) -> int | None:
    text = options.get(name, "")
    if not text:
        return None
    if not text.isdecimal() or int(text) < least:
        shown = {"asof": "asOf"}.get(name, name)
        raise DataError(f"option {shown!r} is a whole number, {least} or more; found {text!r}")
    return int(text)


def _key(options: Mapping[str, str], name: str) -> tuple[Any, ...]:
    text = options.get(name, "")
    if not text:
        return ()
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not found:
        example = '[4, "k"]'
        raise DataError(f"option {name!r} is a JSON array, the first columns of a key, as in {example}; found {text!r}")
    return tuple(found)


def _boolean(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise DataError(f"option {name!r} is true or false; found {text!r}")
    return text == "true"


def _range(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    first, separator, stop = text.partition(":")
    if not separator or not first.isdecimal() or not stop.isdecimal() or not int(first) < int(stop):
        raise DataError(f"option 'buckets' is FIRST:STOP with 0 <= FIRST < STOP <= 16384; found {text!r}")
    return int(first), int(stop)
