"""Errors as problem documents (RFC 9457): one table, from the class of an error to its status and name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from belvedere import errors

BASE = "https://belvedere.dev/problems/"
MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 1


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """`name`: the last part of `type`. `retry`: the same request may succeed later."""

    status: int
    name: str
    title: str
    retry: bool = False


KINDS: Mapping[type[Exception], ProblemKind] = {
    errors.BadRequest: ProblemKind(400, "bad-request", "the request is not understood"),
    errors.SqlError: ProblemKind(400, "sql-error", "the statement cannot be accepted"),
    errors.UnsupportedSql: ProblemKind(422, "unsupported-sql", "the statement is outside what can be maintained"),
    errors.DataError: ProblemKind(422, "data-error", "values do not fit; nothing was written"),
    errors.RequestReused: ProblemKind(422, "request-reused", "another write had this idempotency key"),
    errors.NotAuthenticated: ProblemKind(401, "not-authenticated", "nobody knows who asks"),
    errors.AccessDenied: ProblemKind(403, "access-denied", "the caller may not do that"),
    errors.UnknownRelation: ProblemKind(404, "unknown-relation", "there is no such table or view"),
    errors.NoSuchResource: ProblemKind(404, "not-found", "there is nothing of that name"),
    errors.NotYet: ProblemKind(409, "not-yet", "the answer cannot include the write yet", True),
    errors.CatalogError: ProblemKind(409, "catalog-error", "the name is taken, needed by others, or of another kind"),
    errors.ViewReplaced: ProblemKind(409, "view-replaced", "the view got another shape"),
    errors.ViewFailed: ProblemKind(409, "view-failed", "the view cannot be computed any more"),
    errors.EpochExpired: ProblemKind(410, "epoch-expired", "that epoch is not kept any more"),
    errors.TooLarge: ProblemKind(413, "too-large", "the body is too large"),
    errors.TooManyRequests: ProblemKind(429, "too-many-requests", "too many requests are at work", True),
    errors.Unavailable: ProblemKind(503, "unavailable", "a part of the database does not answer", True),
    errors.Closed: ProblemKind(503, "closed", "the database is closed", True),
    errors.Locked: ProblemKind(503, "locked", "another process has the database", True),
    errors.Incompatible: ProblemKind(502, "incompatible", "the pool is of another version"),
    errors.OutOfTime: ProblemKind(504, "out-of-time", "the request took longer than it may"),
    errors.SlowReader: ProblemKind(503, "slow-reader", "the subscriber did not keep up", True),
    errors.Draining: ProblemKind(503, "draining", "the server stops", True),
    errors.DiskError: ProblemKind(507, "disk-error", "there is no room, or the disk failed"),
    errors.Defect: ProblemKind(500, "defect", "a defect of this program"),
    errors.Contradiction: ProblemKind(500, "contradiction", "a defect of the pool"),
    errors.Damaged: ProblemKind(500, "damaged", "files are damaged"),
    errors.FormatError: ProblemKind(500, "format-error", "files are of a newer version"),
    errors.ReadOnly: ProblemKind(403, "read-only", "the database is open for reading only"),
    errors.StorageError: ProblemKind(500, "storage-error", "files are not as they should be"),
    errors.BelvedereError: ProblemKind(500, "error", "something went wrong"),
}
BAD = {
    405: "method-not-allowed",
    406: "not-acceptable",
    408: "request-timeout",
    415: "unsupported-media-type",
    421: "misdirected-request",
}
UNEXPECTED = ProblemKind(500, "unexpected", "a defect of this program")
_EXTENSIONS = ("hint", "line", "column", "reason", "epoch")


def kind_of(error: BaseException) -> ProblemKind:
    """What an error is over HTTP."""
    for known in type(error).__mro__:
        found = KINDS.get(known)
        if found is not None:
            return _special(error, found)
    return UNEXPECTED


def _special(error: BaseException, found: ProblemKind) -> ProblemKind:
    if isinstance(error, errors.BadRequest) and error.status in BAD:
        return ProblemKind(error.status, BAD[error.status], found.title)
    if isinstance(error, errors.NoSuchResource) and error.kind == "row":
        return ProblemKind(404, "no-such-row", "there is no row of that key")
    return found


def document(error: BaseException, request: str = "") -> dict[str, Any]:
    """The problem document of an error."""
    kind = kind_of(error)
    ours = isinstance(error, errors.BelvedereError)
    told: dict[str, Any] = {
        "type": BASE + kind.name,
        "title": kind.title,
        "status": kind.status,
        # what was not raised on purpose may tell insides: it is in the log, under the name of the request
        "detail": str(error) if ours else f"{type(error).__name__}; the log of the gateway has more",
        "error": type(error).__name__ if ours else "Defect",
    }
    if request:
        told["instance"] = f"urn:belvedere:request:{request}"
    told |= {name: value for name in _EXTENSIONS if (value := getattr(error, name, None)) is not None}
    if isinstance(error, errors.NotYet):
        told["lag_ms"] = error.lag
    return told


def headers(error: BaseException) -> Iterator[tuple[str, str]]:
    """What belongs to it in the head of the answer."""
    kind = kind_of(error)
    if kind.retry:
        seconds = error.seconds if isinstance(error, errors.TooManyRequests) else RETRY_SECONDS
        yield "retry-after", str(max(1, math.ceil(seconds)))
    if kind.status == 401:
        yield "www-authenticate", 'Bearer realm="belvedere"'
