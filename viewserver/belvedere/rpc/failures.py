"""Errors that cross the wire: class, text and attributes, so that the caller catches what was raised.

    try: handler(request)                                    raise rebuild(data, failed)
    except BelvedereError as error: describe(error) ──data──▶  NotYet("view spend is 120 ms behind", lag=120.0)

A class that the receiver does not have (a newer peer) arrives as `BelvedereError` with the same text. Whatever else a
handler raises is a defect there, not an answer: the caller sees a peer that did not answer, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from belvedere import errors

LONGEST_TEXT = 100_000
LONGEST_TRAILER = 1_500
"""Characters of an error that travels in HTTP/2 trailers, which are limited to 8 KB."""

FLIGHT_ERRORS = (pa.ArrowException, OSError, StopIteration)
"""What pyarrow raises when a stream or call fails; `FlightError`s are `ArrowException`s, some are `OSError`s."""

Failed = Callable[[str], errors.BelvedereError]
"""From the reason why there is no answer to the error that says who was asked for what."""


def describe(error: Exception, longest: int = LONGEST_TEXT) -> bytes:
    """`longest`: characters of the text, where there is room for so many only."""
    known = isinstance(error, errors.BelvedereError)
    text = str(error) if known else f"{type(error).__name__}: {error}"
    record = {"class": type(error).__name__ if known else "", "text": _shorten(text, longest)}
    simple = {name: value for name, value in vars(error).items() if isinstance(value, str | int | float | None)}
    fields = {name: _shorten(value, longest) if isinstance(value, str) else value for name, value in simple.items()}
    return json.dumps(record | {"fields": fields if known else {}}).encode("ascii")


def rebuild(data: bytes, failed: Failed) -> errors.BelvedereError:
    """The error to raise here; `failed` makes it where there was a defect."""
    try:
        record: dict[str, Any] = json.loads(data)
        name, text, fields = record["class"], record["text"], record["fields"]
    except (ValueError, TypeError, KeyError):
        return failed("it failed")
    if not name:
        return failed(f"it failed: {text}")
    cls = getattr(errors, name, errors.BelvedereError)
    if not (isinstance(cls, type) and issubclass(cls, errors.BelvedereError)):
        cls = errors.BelvedereError
    error = cls.__new__(cls, text)  # not its __init__: the text is complete already
    error.args = (text,)
    vars(error).update(fields)
    return error


def first_line(error: BaseException) -> str:
    """Without the account that Flight and gRPC give of their own insides."""
    if isinstance(error, flight.FlightError) and error.extra_info:
        return str(rebuild(error.extra_info, errors.PeerUnavailable))
    text = str(error).strip().split("\n", 1)[0].rpartition("error, with message: ")[2]
    return text.split(". gRPC client debug context", 1)[0] or type(error).__name__


def _shorten(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
