"""The vocabulary of the API: what a route is, what a handler gets and what it gives back.

Handlers are plain functions from a `Call` to an `Answer`. They know neither sockets nor threads; the server decides
where they run. Everything that a route takes is declared, so the OpenAPI document is made from the same table as the
routing."""

from __future__ import annotations

import enum
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from belvedere.errors import BadRequest, ReadOnly

if TYPE_CHECKING:
    from belvedere.gateway.auth import Principal
    from belvedere.gateway.databases import GatewayDatabase
    from belvedere.gateway.fanout import Fanouts
    from belvedere.gateway.snapshots import Snapshots

T = TypeVar("T")

JSON = "application/json"
NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
EVENTS = "text/event-stream"
SQL = "application/sql"
YAML = "application/yaml"
TEXT = "text/plain"
SVG = "image/svg+xml"

MAX_WAIT = 60.0
DEFAULT_WAIT = 5.0


class Right(enum.StrEnum):
    """What a caller may do with a relation."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


class Access(enum.Enum):
    """Who may call a route."""

    OPEN = "open"
    """Everybody, known or not."""
    KNOWN = "known"
    """Everybody who is authenticated; the handler decides on what it names."""
    READ = "read"
    """Whoever may read the relation of the path."""
    WRITE = "write"
    ADMIN = "admin"
    ALL = "read on *"
    """Whoever may read everything."""


Parse = Callable[[str, str], Any]
"""From the text of a parameter and its name to its value; raises BadRequest."""


@dataclass(frozen=True, slots=True)
class Param:
    """A query parameter."""

    name: str
    meaning: str
    parse: Parse
    schema: Mapping[str, Any]
    required: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a handler gives back. `parts`: instead of a body, one after the other as they come."""

    body: bytes = b""
    media_type: str = JSON
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    parts: Callable[[], AsyncGenerator[bytes, None]] | None = None
    close: Callable[[], None] | None = None
    """Lets go of what was opened for the parts, also if nobody gets to them. In a thread, when the answer is over."""
    audit: Mapping[str, Any] | None = None
    """Of writes and definitions: what happened, for the audit log."""


class InThread(Protocol):
    """Carries something out in a thread. `waits`: in one of those for what takes long without working."""

    def __call__(self, function: Callable[[], T], *, waits: bool = False) -> Awaitable[T]: ...


@dataclass(slots=True)
class Call:
    """One request, read and allowed."""

    database: GatewayDatabase
    snapshots: Snapshots
    fanouts: Fanouts
    verified: dict[str, dict[str, Any]]
    """The last verification of each view through this gateway."""
    principal: Principal
    allowed: Callable[[Right, str], None]
    """Raises AccessDenied."""
    may: Callable[[Right, str], bool]
    in_thread: InThread
    recheck: Callable[[], Awaitable[None]]
    """Raises if the caller may not go on with what takes long."""
    ended: Callable[[str], None]
    """A subscription was ended, for this reason."""
    relation: str = ""
    name: str = ""
    """The last part of the path, where it is no relation."""
    params: dict[str, Any] = field(default_factory=dict)
    after: str | None = None
    wait: float = DEFAULT_WAIT
    idempotency_key: str = ""
    last_event: str = ""
    body: bytes = b""
    content_type: str = ""
    accept: str = ""
    request: str = ""
    gone: threading.Event = field(default_factory=threading.Event)
    """Set when nobody waits for the answer any more."""
    attempted: Mapping[str, Any] | None = None
    """What a handler is about to change, for the audit log if it fails."""

    def get(self, name: str, default: Any = None) -> Any:
        """A parameter."""
        value = self.params.get(name)
        return default if value is None else value

    def may_see(self, relation: str) -> bool:
        """Whether the caller may know that there is such a relation: by any right."""
        return any(self.may(right, relation) for right in Right)


Handler = Callable[[Call], Answer]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route. `quick`: answers at once, or says None if it would have to wait; then `run` does it in a thread.
    `produces`: media types by preference. `patient`: goes on until it is done, however long that takes."""

    method: str
    path: str
    summary: str
    access: Access
    run: Handler
    params: tuple[Param, ...] = ()
    consumes: tuple[str, ...] = ()
    produces: tuple[str, ...] = (JSON,)
    answer: str = "object"
    body: str = ""
    """Names of schemas in `belvedere.gateway.schemas`."""
    status: int = 200
    quick: Callable[[Call], Answer | None] | None = None
    together: Callable[[Sequence[Call]], Sequence[Answer | Exception]] | None = None
    """Of a pool: calls of one relation that come at the same time and ask for the newest rows."""
    patient: bool = False
    reads_after: bool = False
    """Takes Belvedere-After and Belvedere-Wait."""
    idempotent: bool = False
    optional_body: bool = False
    changes: bool = False
    """Not for a database that is open for reading only."""


# ---------------------------------------------------------------------- parameters


def text(value: str, name: str) -> str:
    return value


def flag(value: str, name: str) -> bool:
    if value not in ("true", "false"):
        raise BadRequest(f"{name}={value[:40]}: it is true or false")
    return value == "true"


def number(low: int, high: int) -> Parse:
    def parse(value: str, name: str) -> int:
        if not (value.isascii() and value.isdecimal()) or len(value) > 20 or not low <= int(value) <= high:
            raise BadRequest(f"{name}={value[:40]}: it is a number from {low} to {high}")
        return int(value)

    return parse


def choice(*known: str) -> Parse:
    def parse(value: str, name: str) -> str:
        if value not in known:
            raise BadRequest(f"{name}={value[:40]}: it is one of {', '.join(known)}")
        return value

    return parse


def read_only() -> ReadOnly:
    return ReadOnly("the database is open for reading only here; ask the server that writes it")


def accepted(accept: str, produces: Sequence[str]) -> str:
    """The media type that the caller wants most, of those that there are; the first one if it does not say."""
    if not accept or accept == "*/*":
        return produces[0]
    best, weight = "", 0.0
    ranges = [_media_range(part) for part in accept.split(",")[:32]]
    for media in produces:
        found = max((r for r in ranges if _fits(r[0], media)), key=lambda r: len(r[0].rstrip("*")), default=None)
        if found is not None and found[1] > weight:
            best, weight = media, found[1]
    if not best:
        raise BadRequest(f"Accept: {accept[:100]}: there is {', '.join(produces)}", 406)
    return best


def _media_range(part: str) -> tuple[str, float]:
    media, *settings = (piece.strip() for piece in part.split(";"))
    quality = 1.0
    for setting in settings:
        if setting.startswith("q="):
            try:
                quality = min(max(float(setting[2:]), 0.0), 1.0)
            except ValueError:
                raise BadRequest(f"Accept: {part[:60]!r}: q is a number from 0 to 1", 406) from None
    return media.lower(), quality


def _fits(wanted: str, media: str) -> bool:
    return wanted in (media, "*/*") or (wanted.endswith("/*") and media.startswith(wanted[:-1]))
