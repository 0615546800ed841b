"""What a process says: one line per event, with names and values instead of sentences.

    log = logs.get("default", "viewserver", "viewserver-2")
    log.info("committed", epoch=1_700_000_000_123, rows=1_204)

    {"time":"2023-11-14T22:13:20.456Z","level":"info","pool":"default",…,"epoch":1700000000123,"event":"committed","rows":1204}
    22:13:20.456 info    viewserver viewserver-2  committed epoch=1700000000123 rows=1204

JSON lines by default, readable ones on a terminal. An event that repeats is written a few times, then counted: the next
line that is written of it says how often it was `repeated`. Events are the same if their level, name and texts are;
numbers may differ. Logging never raises, and values of fields that look like secrets are masked.
"""

from __future__ import annotations

import datetime
import json
import logging
import math
import numbers
import re
import sys
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TextIO

from belvedere import errors

Level = Literal["debug", "info", "warning", "error"]
Form = Literal["json", "text"]

BURST = 10
"""Lines of the same event that are written within a window."""
WINDOW = 10.0
"""Seconds."""
REMEMBERED = 1_000
LONGEST_VALUE = 4_000

_LEVELS: dict[Level, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_SECRET = re.compile(r"passw|secret|token|credential|authori[sz]ation|private|api_?key", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)[^/@\s]+@")
_RESERVED = frozenset(("time", "level", "pool", "role", "member", "event"))
_PLAIN = re.compile(r"[^\s\"'={}\[\]]+")


def get(
    pool: str,
    role: str,
    member: str,
    *,
    stream: TextIO | None = None,
    form: Form | None = None,
    level: Level = "info",
    clock: Callable[[], float] = time.time,
) -> Log:
    """`stream`: standard error unless told. `form`: text on a terminal, else JSON, unless told."""
    chosen = sys.stderr if stream is None else stream
    if form is None:
        form = "text" if chosen.isatty() else "json"
    return Log(_Sink(chosen, form, _LEVELS[level], clock), {"pool": pool, "role": role, "member": member})


class Log:
    """Thread-safe. Fields are names with values; `epoch` has a place of its own in the line."""

    def __init__(self, sink: _Sink, common: dict[str, object]) -> None:
        self._sink = sink
        self._common = common

    def bind(self, **fields: object) -> Log:
        """A log that adds these fields to every line."""
        return Log(self._sink, self._common | _presentable_fields(fields))

    def debug(self, event: str, /, **fields: object) -> None:
        self._sink.write("debug", event, self._common, fields)

    def info(self, event: str, /, **fields: object) -> None:
        self._sink.write("info", event, self._common, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        self._sink.write("warning", event, self._common, fields)

    def error(self, event: str, /, **fields: object) -> None:
        self._sink.write("error", event, self._common, fields)

    def failure(self, event: str, error: BaseException, /, **fields: object) -> None:
        """An error with its reason. One that nobody raised on purpose is a defect: then with where it happened."""
        if not isinstance(error, errors.BelvedereError):
            fields["where"] = "".join(traceback.format_exception(error)[-8:])
        self._sink.write("error", event, self._common, {"error": error, **fields})

    def flush(self) -> None:
        """Write the counts of repeats that are still held back."""
        self._sink.flush()

    def adopt(self, logger: str, level: Level = "warning") -> None:
        """Let a library that uses `logging` (kazoo, ...) speak through this log."""
        found = logging.getLogger(logger)
        found.handlers = [_Adopted(self, level)]
        found.propagate = False


@dataclass
class _Repeats:
    """One event in its current window."""

    until: float
    written: int
    held_back: int
    last: tuple[Level, str, dict[str, object], dict[str, object]]


class _Sink:
    def __init__(self, stream: TextIO, form: Form, least: int, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._render = _as_json if form == "json" else _as_text
        self._least = least
        self._clock = clock
        self._lock = threading.Lock()
        self._repeats: OrderedDict[tuple[object, ...], _Repeats] = OrderedDict()

    def write(self, level: Level, event: str, common: dict[str, object], fields: dict[str, object]) -> None:
        if _LEVELS[level] < self._least:
            return
        fields = _presentable_fields(fields)
        now = self._clock()
        texts = ((name, value) for name, value in (common | fields).items() if isinstance(value, str))
        with self._lock:
            self._end_windows(now)
            key = (level, event, *texts)
            repeats = self._repeats.get(key)
            if repeats is None:
                repeats = self._repeats[key] = _Repeats(now + WINDOW, 0, 0, (level, event, common, fields))
            if repeats.written < BURST:
                repeats.written += 1
                self._put(now, level, event, common, fields)
            else:
                repeats.held_back += 1
                repeats.last = (level, event, common, fields)

    def flush(self) -> None:
        with self._lock:
            self._end_windows(float("inf"))

    def _end_windows(self, now: float) -> None:
        """Windows end in the order in which they began."""
        while self._repeats:
            key, repeats = next(iter(self._repeats.items()))
            if repeats.until > now and len(self._repeats) < REMEMBERED:
                return
            del self._repeats[key]
            if repeats.held_back:
                level, event, common, fields = repeats.last
                self._put(self._clock(), level, event, common, {**fields, "repeated": repeats.held_back})

    def _put(self, now: float, level: str, event: str, common: dict[str, object], fields: dict[str, object]) -> None:
        try:
            self._stream.write(self._render(now, level, event, common, fields) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            pass  # a full disk or a closed stream: there is nobody left to tell


class _Adopted(logging.Handler):
    def __init__(self, log: Log, level: Level) -> None:
        super().__init__(_LEVELS[level])
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        write = self._log.error if record.levelno >= logging.ERROR else self._log.warning
        if record.levelno < logging.WARNING:
            write = self._log.info if record.levelno >= logging.INFO else self._log.debug
        try:
            text = record.getMessage()
        except (TypeError, ValueError):  # arguments that do not fit their format
            text = str(record.msg)
        write(record.name, text=text)


def _presentable_fields(fields: dict[str, object]) -> dict[str, object]:
    """Values that JSON has, without secrets; names that say who writes the line are not taken by others."""
    return {f"{name}_" if name in _RESERVED else name: _presentable(name, value) for name, value in fields.items()}


def _presentable(name: str, value: object) -> object:
    if _SECRET.search(name):
        return "***"
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, dict):
        return {str(key): _presentable(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_presentable(name, item) for item in value]
    text = _USER_INFO.sub("***@", _as_string(value))
    return text if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + "…"


def _as_string(value: object) -> str:
    try:
        if isinstance(value, BaseException) and not isinstance(value, errors.BelvedereError):
            return f"{type(value).__name__}: {value}"
        return str(value)
    except Exception:  # a `__str__` that fails must not take the process down
        return f"<{type(value).__name__}>"


def _moment(now: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(now, datetime.UTC)


def _as_json(now: float, level: str, event: str, common: dict[str, object], fields: dict[str, object]) -> str:
    stamp = _moment(now).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    rest = common | fields
    line: dict[str, Any] = {"time": stamp, "level": level}
    line |= {name: rest.pop(name) for name in ("pool", "role", "member", "epoch") if name in rest}
    line["event"] = event
    return json.dumps(line | rest, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace").decode()


def _as_text(now: float, level: str, event: str, common: dict[str, object], fields: dict[str, object]) -> str:
    rest = common | fields
    who = f"{rest.pop('role', '')} {rest.pop('member', '')}"
    rest.pop("pool", None)
    where = rest.pop("where", "")
    repeated = rest.pop("repeated", None)
    values = "".join(f" {name}={_as_word(value)}" for name, value in rest.items())
    ending = f" (repeated {repeated} times)" if repeated else ""
    stamp = _moment(now).strftime("%H:%M:%S.%f")[:-3]
    text = f"{stamp} {level:<7} {who}  {event}{values}{ending}" + (f"\n{where}".rstrip() if where else "")
    return text.encode("utf-8", "replace").decode()


def _as_word(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if _PLAIN.fullmatch(text) or not isinstance(value, str) else json.dumps(text, ensure_ascii=False)
