"""Problem documents, back to the errors that they were: the same class, the same text, the same fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from belvedere import errors

_BY_STATUS: Mapping[int, type[errors.BelvedereError]] = {
    401: errors.NotAuthenticated,
    403: errors.AccessDenied,
    408: errors.Unavailable,
    413: errors.TooLarge,
    502: errors.Unavailable,
    503: errors.Unavailable,
    504: errors.Unavailable,
}
"""For answers of whatever stands in front of a gateway."""


def error_of(url: str, status: int, headers: Mapping[str, str], body: bytes) -> errors.BelvedereError:
    """The error that an answer stands for."""
    told = _document(headers, body)
    if told is None:
        text = f"{url} answered {status} without a problem document"
        if status == 429:
            return errors.TooManyRequests(text, _seconds(headers))
        found = _BY_STATUS.get(status)
        if found is not None:
            return found(text)
        return errors.Incompatible(f"{text}; is a gateway there?")
    return raised(told, headers)


def raised(told: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> errors.BelvedereError:
    """The error of a problem document."""
    kind = getattr(errors, str(told.get("error")), None)
    if not (isinstance(kind, type) and issubclass(kind, errors.BelvedereError)):
        kind = _BY_STATUS.get(told.get("status", 500), errors.Defect)
    detail = str(told.get("detail", told.get("title", "")))
    if issubclass(kind, errors.SqlError):
        return kind(
            str(told.get("reason", detail)), line=told.get("line"), column=told.get("column"), hint=told.get("hint")
        )
    if issubclass(kind, errors.NotYet):
        return kind(detail, float(told.get("lag_ms", 0.0)))
    if issubclass(kind, errors.ViewFailed):
        return kind(detail, int(told.get("epoch", 0)))
    if issubclass(kind, errors.TooManyRequests):
        return kind(detail, _seconds(headers or {}))
    if issubclass(kind, errors.BadRequest):
        return kind(detail, int(told.get("status", 400)))
    if issubclass(kind, errors.NoSuchResource):
        return kind(detail, "row" if str(told.get("type", "")).endswith("/no-such-row") else "path")
    return kind(detail)


def _document(headers: Mapping[str, str], body: bytes) -> dict[str, Any] | None:
    kind = next((value for name, value in headers.items() if name.lower() == "content-type"), "")
    if "problem+json" not in kind:
        return None
    try:
        told = json.loads(body)
    except ValueError:
        return None
    return told if isinstance(told, dict) and "error" in told else None


def _seconds(headers: Mapping[str, str]) -> float:
    text = next((value for name, value in headers.items() if name.lower() == "retry-after"), "")
    return float(text) if text.isascii() and text.isdecimal() else 1.0
