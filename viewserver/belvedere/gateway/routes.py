"""All routes of the API, in the order in which they are looked for: point reads come first."""

from __future__ import annotations

import functools

from belvedere import __version__
from belvedere.gateway import definitions, operating, reads, subscriptions, values, writes
from belvedere.gateway.api import Access, Answer, Call, Endpoint

API = 1


def service(call: Call) -> Answer:
    told = {
        "service": "belvedere",
        "version": __version__,
        "api": API,
        "database": call.database.kind,
        "read_only": call.database.read_only,
    }
    return Answer(values.dumps(told))


@functools.cache
def _document() -> bytes:
    from belvedere.gateway import openapi

    return openapi.text(ENDPOINTS).encode()


def document(call: Call) -> Answer:
    return Answer(_document())


ENDPOINTS: tuple[Endpoint, ...] = (
    *reads.ENDPOINTS,
    *writes.ENDPOINTS,
    *subscriptions.ENDPOINTS,
    *definitions.ENDPOINTS,
    *operating.ENDPOINTS,
    Endpoint("GET", "/v1", "What answers here", Access.OPEN, service, answer="Service", quick=service),
    Endpoint("GET", "/v1/openapi.json", "This document", Access.OPEN, document, answer="Object"),
)
