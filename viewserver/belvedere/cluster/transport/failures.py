"""Errors that cross the wire: class, text and attributes, so that the caller catches what was raised.

    try: handler(request)                                    raise rebuild(data)
    except BelvedereError as error: describe(error) ──data──▶  NotYet("view spend is 120 ms behind", lag=120.0)

A class that the receiver does not have (a newer peer) arrives as `BelvedereError` with the same text. Whatever else a
handler raises is a defect there, not an answer: the caller sees a peer that did not answer, with the reason.
"""

from __future__ import annotations

import json
from typing import Any

from belvedere import errors

LONGEST_TEXT = 100_000


def describe(error: Exception, longest: int = LONGEST_TEXT) -> bytes:
    """`longest`: characters of the text, where there is room for so many only."""
    known = isinstance(error, errors.BelvedereError)
    text = str(error) if known else f"{type(error).__name__}: {error}"
    record = {"class": type(error).__name__ if known else "", "text": _shorten(text, longest)}
    simple = {name: value for name, value in vars(error).items() if isinstance(value, str | int | float | None)}
    fields = {name: _shorten(value, longest) if isinstance(value, str) else value for name, value in simple.items()}
    return json.dumps(record | {"fields": fields if known else {}}).encode("ascii")


def rebuild(data: bytes, where: str) -> errors.BelvedereError:
    """The error to raise here; `where` names who was asked for what, in case that it was a defect."""
    try:
        record: dict[str, Any] = json.loads(data)
        name, text, fields = record["class"], record["text"], record["fields"]
    except (ValueError, TypeError, KeyError):
        return errors.PeerUnavailable(f"{where} failed")
    if not name:
        return errors.PeerUnavailable(f"{where} failed: {text}")
    cls = getattr(errors, name, errors.BelvedereError)
    if not (isinstance(cls, type) and issubclass(cls, errors.BelvedereError)):
        cls = errors.BelvedereError
    error = cls.__new__(cls, text)  # not its __init__: the text is complete already
    error.args = (text,)
    vars(error).update(fields)
    return error


def _shorten(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
