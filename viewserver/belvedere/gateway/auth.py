"""Who asks, and what they may do: two hooks, and what they are in the simplest case.

    credentials ── Authenticator ──▶ Principal ── Authorizer(right, kind, relation) ──▶ yes, or no with a reason

Both may ask somebody else (Kubernetes' TokenReview and SubjectAccessReview), so they may be slow: `recall` gives an
answer that is known already, and only without one `authenticate` is called, in a thread.
"""

from __future__ import annotations

import fnmatch
import functools
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from belvedere.errors import NotAuthenticated
from belvedere.gateway.api import Right


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a request shows. `certificate`: of the client, verified by TLS."""

    bearer: str = ""
    certificate: Certificate | None = None
    address: str = ""


@dataclass(frozen=True, slots=True)
class Certificate:
    subject: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who was recognised. `rights`: patterns of relations by right, where the authenticator knows them.
    `groups` and `extra` are for authorizers that ask elsewhere. `until`: when it is to be looked at again (epoch
    seconds)."""

    name: str
    rights: Mapping[Right, tuple[str, ...]] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    allowed: bool
    reason: str = ""


class Authenticator(Protocol):
    """Credentials to principals. Thread-safe."""

    def recall(self, credentials: Credentials) -> Principal | None:
        """Whoever it is, if that is known without asking anybody."""

    def authenticate(self, credentials: Credentials) -> Principal:
        """Raises NotAuthenticated. May block."""


class Authorizer(Protocol):
    """Principals to decisions. Thread-safe."""

    def recall(self, principal: Principal, right: Right, relation: str) -> Decision | None:
        """What is known without asking anybody."""

    def decide(self, principal: Principal, right: Right, kind: str, relation: str) -> Decision:
        """`kind`: table, view, or empty where it is not known. `relation`: a name, or `*` for all. May block."""


EVERYBODY = Principal("anonymous", dict.fromkeys(Right, ("*",)))


class NoAuthentication:
    """Everybody on this machine; the server sees to it that nobody else comes."""

    def recall(self, credentials: Credentials) -> Principal:
        return EVERYBODY

    def authenticate(self, credentials: Credentials) -> Principal:
        return EVERYBODY


class FirstOf:
    """Several authenticators: the first that knows the credentials."""

    def __init__(self, *others: Authenticator) -> None:
        self._others = others

    def recall(self, credentials: Credentials) -> Principal | None:
        for other in self._others:
            found = other.recall(credentials)
            if found is not None:
                return found
        return None

    def authenticate(self, credentials: Credentials) -> Principal:
        reasons = []
        for other in self._others:
            try:
                return other.authenticate(credentials)
            except NotAuthenticated as error:
                reasons.append(str(error))
        raise NotAuthenticated("; ".join(dict.fromkeys(reasons)) or "no credentials are accepted here")


class ByPattern:
    """Rights that came with the principal, as patterns of names."""

    def recall(self, principal: Principal, right: Right, relation: str) -> Decision:
        return self.decide(principal, right, "", relation)

    def decide(self, principal: Principal, right: Right, kind: str, relation: str) -> Decision:
        for sufficient in (right, Right.ADMIN):
            if any(matches(pattern, relation) for pattern in principal.rights.get(sufficient, ())):
                return Decision(True)
        return Decision(False, f"{principal.name!r} may not {right} {relation!r}")


def matches(pattern: str, relation: str) -> bool:
    """`*` and `?` stand for characters; case does not count. All relations (`*`) are matched by `*` alone."""
    return pattern == "*" or (relation != "*" and _compiled(pattern).match(relation.lower()) is not None)


@functools.lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    escaped = pattern.lower().replace("[", "[[]")  # fnmatch has classes of characters, patterns here have not
    return re.compile(fnmatch.translate(escaped))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address to listen on."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
