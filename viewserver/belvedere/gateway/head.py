"""What stands in the head of a request: headers that mean something, names in the path, seconds, keys."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from starlette.types import Scope

from belvedere import errors
from belvedere.gateway.api import DEFAULT_WAIT, MAX_WAIT, Endpoint

_KEY = re.compile(r"[!-~]{1,200}\Z")
_HEADERS = frozenset(
    b"authorization belvedere-after belvedere-wait belvedere-request idempotency-key last-event-id content-type"
    b" content-length content-encoding accept origin host belvedere-authorization".split()
)


def headers(scope: Scope) -> tuple[dict[bytes, bytes], str]:
    """Those that mean something here, and the name of one that came twice and is no list: it is refused."""
    found: dict[bytes, bytes] = {}
    twice = ""
    for name, value in scope["headers"]:
        if name in _HEADERS:
            if name == b"belvedere-after" and name in found:
                found[name] += b" " + value
            elif name == b"accept" and name in found:
                found[name] += b"," + value
            elif found.setdefault(name, value) != value:
                twice = name.decode()
    return found, twice


def path_part(raw: str) -> str:
    try:
        name = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise errors.BadRequest("the path is no UTF-8 behind its percent signs") from None
    if any(ord(character) < 32 for character in name):
        raise errors.BadRequest("the path has control characters")
    return name


def without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0][1:]
    return host.rpartition(":")[0] if ":" in host else host


def seconds(text: str) -> float:
    try:
        found = float(text) if len(text) < 20 else -1.0
    except ValueError:
        found = -1.0
    if not 0.0 <= found <= MAX_WAIT:
        raise errors.BadRequest(
            f"Belvedere-Wait: {text[:40]!r}: seconds from 0 to {MAX_WAIT:g}, {DEFAULT_WAIT:g} if absent"
        )
    return found


def idempotency_key(endpoint: Endpoint, key: str) -> str:
    if not endpoint.idempotent:
        raise errors.BadRequest("Idempotency-Key has no meaning here; writes by rows, deletes and changes take one")
    if not _KEY.match(key):
        raise errors.BadRequest("Idempotency-Key: 1 to 200 visible ASCII characters")
    return key


def too_large(most: int) -> errors.TooLarge:
    return errors.TooLarge(
        f"the body has more than {most >> 20 or 1} MiB, which is all that is taken; write in several"
    )
