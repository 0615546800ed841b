"""Certificates of a pool: which authority signs, whom everybody trusts, and what is to be replaced now.

    one ──due, or asked for──▶ told (two are trusted, the old one signs) ──known for a while──▶ changing (the new one
     ▲                                                                                            signs) ─┐
     └───────────────────────────── all certificates have been by the new one for a while ────────────────┘

Nothing is remembered: it follows from what lies in the Secrets, so an operator may stop between any two writes. The
reasons are in docs/design/certificates.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SERVERS = ("coordinator", "distributor", "viewserver", "store")
"""Roles that listen. The others ask only."""
CLIENTS = ("gateway", "client")
CLOCKS_S = 60.0
"""A time that lies so far in the future was written by a clock that was wrong."""
SETTLED_S = 300.0
"""Until Secrets are looked at again when nothing is under way."""


@dataclass(frozen=True, slots=True)
class Authority:
    """`signs`: its key is known. One without can only be trusted."""

    number: int
    begins: float
    ends: float
    signs: bool = True


@dataclass(frozen=True, slots=True)
class Leaf:
    """What the Secret of a role holds."""

    role: str
    by: int | None
    """Number of the authority that signed the certificate; None: one that is not known, or there is no certificate."""
    begins: float
    ends: float
    since: float | None
    """Since when it holds this certificate."""
    trusts: frozenset[int]
    trusts_since: float | None
    """Since when it holds these authorities."""
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the pool asks for."""

    names: dict[str, tuple[str, ...]]
    """By role: the names that its certificate carries."""
    lifetime_s: float
    authority_lifetime_s: float
    pause_s: float
    """How long everybody is given to read what was changed."""
    rotate: bool = False
    """Somebody asked for a new authority."""


@dataclass(frozen=True, slots=True)
class Plan:
    introduce: int | None
    """Make an authority with this number."""
    retire: frozenset[int]
    issue: dict[str, int]
    """Roles that get a certificate, and by whom."""
    trust: frozenset[int]
    """Whom everybody trusts from now on."""
    tell: frozenset[str]
    """Roles whose Secret has other authorities, or does not say since when it has them."""
    signer: int
    again_s: float


def decide(authorities: Sequence[Authority], leaves: Iterable[Leaf], wanted: Wanted, now: float) -> Plan:
    held = {leaf.role: leaf for leaf in leaves}
    known = {one.number: one for one in authorities}
    introduce = _introduced(authorities, wanted, now)
    if introduce is not None:
        known[introduce] = Authority(introduce, now, now + wanted.authority_lifetime_s)
    newest = max(known)
    signer = _signer(known, held.values(), wanted, now)
    issue = {}
    for role in wanted.names:
        leaf = held.get(role)
        if leaf is None or leaf.by is None:
            issue[role] = signer or newest
        elif signer is not None and (leaf.by < signer or _due(leaf, wanted, now)):
            issue[role] = signer
    retire = frozenset[int]()
    changed = all(leaf.by == newest and _passed(leaf.since, wanted, now) for leaf in held.values())
    if len(known) > 1 and introduce is None and signer == newest and not issue and changed:
        retire = frozenset(known) - {newest}
    trust = frozenset(known) - retire
    tell = frozenset(role for role, leaf in held.items() if leaf.trusts != trust or not _dated(leaf.trusts_since, now))
    moving = len(known) > 1 or bool(issue) or bool(tell)
    again = min(SETTLED_S, max(1.0, wanted.pause_s / 4)) if moving else SETTLED_S
    return Plan(introduce, retire, issue, trust, tell, signer or newest, again)


def _introduced(authorities: Sequence[Authority], wanted: Wanted, now: float) -> int | None:
    """The number of a new one, if there is to be one. A rotation that is under way is finished first."""
    number = max((one.number for one in authorities), default=0) + 1
    if not any(one.signs for one in authorities):
        return number
    if len(authorities) > 1:
        return None
    (one,) = authorities
    due = one.ends - now < max(wanted.authority_lifetime_s / 3, 2 * wanted.lifetime_s)
    return number if due or wanted.rotate else None


def _signer(known: dict[int, Authority], held: Iterable[Leaf], wanted: Wanted, now: float) -> int | None:
    """The newest that everybody has known for long enough; until there is one, who signed until now."""
    leaves = list(held)
    able = [number for number, one in known.items() if one.signs and one.ends > now]
    if all(leaf.ends <= now for leaf in leaves):  # nobody can talk to anybody: there is nothing to wait for
        return max(able, default=None)
    told = [number for number in able if all(number in leaf.trusts for leaf in leaves)]
    while_ago = all(_passed(leaf.trusts_since, wanted, now) for leaf in leaves)
    if told and while_ago:
        return max(told)
    return max((leaf.by for leaf in leaves if leaf.by in told and leaf.by is not None), default=None)


def _due(leaf: Leaf, wanted: Wanted, now: float) -> bool:
    """Half of its life is over, it lives longer than it should by now, or it has not the names or no date."""
    lasts = leaf.ends - leaf.begins
    return (
        now >= leaf.begins + lasts / 2
        or lasts > wanted.lifetime_s * 1.01
        or not frozenset(wanted.names[leaf.role]) <= leaf.names
        or not _dated(leaf.since, now)
    )


def _dated(since: float | None, now: float) -> bool:
    return since is not None and since <= now + CLOCKS_S


def _passed(since: float | None, wanted: Wanted, now: float) -> bool:
    return since is not None and now - since >= wanted.pause_s


def left_ratio(leaves: Iterable[Leaf], now: float) -> float:
    """How much of its life the certificate has left that has the least; 0 when one has ended."""
    return min((max(0.0, (leaf.ends - now) / max(1.0, leaf.ends - leaf.begins)) for leaf in leaves), default=0.0)
