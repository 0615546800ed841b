"""Certificates of one pool: what lies in its Secrets is read, what is to change is decided, and written step by step.

Every write names the version that was read, so of two operators one gets a conflict and decides again.
"""

from __future__ import annotations

import base64
import datetime
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from belvedere_operator import pki
from belvedere_operator.api import durations
from belvedere_operator.build import certificates as build
from belvedere_operator.build.inputs import PoolInput
from belvedere_operator.decide.certificates import (
    CLIENTS,
    SERVERS,
    Authority,
    Leaf,
    Plan,
    Wanted,
    decide,
    left_ratio,
)
from belvedere_operator.kube.client import Kube, KubeError, Resource
from belvedere_operator.kube.events import Event
from belvedere_operator.names import BUNDLE_SINCE, CERTIFICATE_SINCE, ROTATED
from belvedere_operator.times import seconds, stamp

log = logging.getLogger(__name__)
ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Secured:
    """How a pool's certificates stand."""

    authority: int
    signer: int
    left: float

    @property
    def text(self) -> str:
        if self.signer != self.authority:
            return (
                f"authority {self.authority} is told to all members; authority {self.signer} signs until they know it"
            )
        return f"members show each other certificates of authority {self.authority}"


@dataclass(slots=True)
class _Observed:
    state: Resource | None
    pairs: dict[int, pki.Pair]
    """Authorities by number; one without a key can only be trusted."""
    rotated: str
    secrets: dict[str, Resource]
    leaves: list[Leaf]


class PoolCertificates:
    """Of one pool."""

    def __init__(self, kube: Kube, clock: Callable[[], float], pause_s: float) -> None:
        self._kube, self._clock, self._pause_s = kube, clock, pause_s
        self._again = float("-inf")
        self._asked = ""
        self.secured: Secured | None = None

    def tend(self, pool: PoolInput, asked: str) -> list[Event]:
        """`asked`: the annotation with which people ask for a new authority. Looks when something is due."""
        now = self._clock()
        if now < self._again and asked == self._asked:
            return []
        for _ in range(ATTEMPTS):
            observed = self._observe(pool)
            wanted = _wanted(pool, self._pause_s, rotate=bool(asked) and asked != observed.rotated)
            plan = decide(_authorities(observed.pairs), observed.leaves, wanted, now)
            try:
                events = self._act(pool, observed, plan, wanted, asked, now)
            except KubeError as error:
                if error.conflict or error.missing:
                    continue  # somebody was faster
                raise
            self._again, self._asked = now + plan.again_s, asked
            return events
        raise KubeError(409, "Conflict", f"secrets of pool {pool.namespace}/{pool.name} change all the time")

    # ------------------------------------------------------------------ observing

    def _observe(self, pool: PoolInput) -> _Observed:
        state = self._kube.get("v1", "Secret", pool.namespace, build.authority_secret(pool))
        pairs = _pairs(state)
        secrets = {}
        for role in (*SERVERS, *CLIENTS):
            found = self._kube.get("v1", "Secret", pool.namespace, build.role_secret(pool, role))
            if found is not None:
                secrets[role] = found
        for secret in secrets.values():
            _adopt(pairs, _data(secret))
        leaves = [_leaf(role, secret, pairs) for role, secret in secrets.items()]
        rotated = ((state or {}).get("metadata", {}).get("annotations") or {}).get(ROTATED, "")
        return _Observed(state, pairs, rotated, secrets, leaves)

    # ------------------------------------------------------------------ acting

    def _act(
        self, pool: PoolInput, observed: _Observed, plan: Plan, wanted: Wanted, asked: str, now: float
    ) -> list[Event]:
        at = datetime.datetime.fromtimestamp(now, datetime.UTC)
        pairs, events = dict(observed.pairs), []
        rotated = observed.rotated
        if plan.introduce is not None:
            lasts = datetime.timedelta(seconds=wanted.authority_lifetime_s)
            pairs[plan.introduce] = pki.authority(_authority_name(pool, plan.introduce), at, lasts)
            rotated = asked or rotated
            if observed.leaves:
                events.append(Event("AuthorityIntroduced", f"authority {plan.introduce} is told to all members"))
        for number in plan.retire:
            del pairs[number]
            events.append(Event("AuthorityRetired", f"authority {number} is trusted no more"))
        if pairs != _pairs(observed.state) or rotated != observed.rotated:
            self._write_state(pool, observed.state, pairs, rotated)
        trusted = b"".join(pairs[number].certificate for number in sorted(plan.trust, reverse=True))
        lifetime = datetime.timedelta(seconds=wanted.lifetime_s)
        changed = {leaf.by for leaf in observed.leaves if leaf.role in plan.issue}
        for role in sorted(plan.issue.keys() | plan.tell):
            pair = None
            if role in plan.issue:
                server = role in SERVERS
                signer = pairs[plan.issue[role]]
                pair = pki.issue(signer, wanted.names[role], at, lifetime, server=server, client=True)
            self._write_role(pool, role, observed.secrets.get(role), pair, trusted, role in plan.tell, now)
        if plan.issue and changed - {plan.signer, None}:
            events.append(Event("AuthorityInForce", f"certificates are by authority {plan.signer} from now on"))
        fresh = [replace(leaf, begins=now, ends=now + wanted.lifetime_s) if leaf.role in plan.issue else leaf
                 for leaf in observed.leaves]  # fmt: skip
        self.secured = Secured(max(pairs), plan.signer, left_ratio(fresh, now) if fresh else 1.0)
        return events

    def _write_state(self, pool: PoolInput, state: Resource | None, pairs: dict[int, pki.Pair], rotated: str) -> None:
        data: dict[str, str | None] = {}
        for number, pair in pairs.items():
            data[f"{number}.crt"] = _encoded(pair.certificate)
            data[f"{number}.key"] = _encoded(pair.key) if pair.key else None
        data |= {name: None for name in ((state or {}).get("data") or {}) if name not in data}
        self._write(pool, build.authority_secret(pool), state, data, {ROTATED: rotated} if rotated else {})

    def _write_role(
        self,
        pool: PoolInput,
        role: str,
        secret: Resource | None,
        pair: pki.Pair | None,
        trusted: bytes,
        told: bool,
        now: float,
    ) -> None:
        data: dict[str, str | None] = {"ca.crt": _encoded(trusted)}
        annotations = {BUNDLE_SINCE: stamp(now)} if told or secret is None else {}
        if pair is not None:
            data |= {"tls.crt": _encoded(pair.certificate), "tls.key": _encoded(pair.key)}
            annotations[CERTIFICATE_SINCE] = stamp(now)
        self._write(pool, build.role_secret(pool, role), secret, data, annotations)

    def _write(
        self,
        pool: PoolInput,
        name: str,
        secret: Resource | None,
        data: dict[str, str | None],
        annotations: dict[str, str],
    ) -> None:
        if secret is not None:
            meta = {"resourceVersion": secret["metadata"]["resourceVersion"], "annotations": annotations}
            self._kube.merge(secret, {"metadata": meta, "data": data})
            return
        given = {key: value for key, value in data.items() if value is not None}
        meta = pool.meta(name) | {"annotations": annotations}
        self._kube.create({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": meta, "data": given})


def _wanted(pool: PoolInput, pause_s: float, *, rotate: bool) -> Wanted:
    names = {role: build.names(pool, role, server=role in SERVERS) for role in (*SERVERS, *CLIENTS)}
    return Wanted(
        names,
        durations.seconds(pool.tls.certificate_lifetime),
        durations.seconds(pool.tls.authority_lifetime),
        pause_s,
        rotate,
    )


def _authority_name(pool: PoolInput, number: int) -> str:
    """The number comes first: names are cut."""
    return f"authority {number} of {pool.namespace}/{pool.name}"


def _authorities(pairs: dict[int, pki.Pair]) -> list[Authority]:
    found = []
    for number, pair in pairs.items():
        told = pki.facts(pair.certificate)
        found.append(Authority(number, told.begins, told.ends, bool(pair.key)))
    return found


def _pairs(state: Resource | None) -> dict[int, pki.Pair]:
    """By number. What was changed by others and is no good counts as not there."""
    data = _data(state)
    found: dict[int, pki.Pair] = {}
    for name, certificate in data.items():
        number, _, kind = name.partition(".")
        if kind != "crt" or not number.isdecimal() or not pki.split(certificate):
            continue
        pair = pki.Pair(certificate, data.get(f"{number}.key", b""))
        found[int(number)] = pair if pki.belongs(pair) else pki.Pair(certificate, b"")
    return found


def _adopt(pairs: dict[int, pki.Pair], data: dict[str, bytes]) -> None:
    """The authority of a certificate that is in use is trusted, also if the Secret of authorities is lost."""
    certificate = data.get("tls.crt", b"")
    if not pki.split(certificate) or any(pki.signed(certificate, pair.certificate) for pair in pairs.values()):
        return
    for one in pki.split(data.get("ca.crt", b"")):
        if pki.signed(certificate, one):
            words = pki.facts(one).name.split()
            number = int(words[1]) if len(words) > 1 and words[1].isdecimal() else 0
            while number in pairs:
                number += 1
            pairs[number] = pki.Pair(one, b"")
            return


def _leaf(role: str, secret: Resource, pairs: dict[int, pki.Pair]) -> Leaf:
    data, annotations = _data(secret), secret["metadata"].get("annotations") or {}
    numbers = {pair.certificate.strip(): number for number, pair in pairs.items()}
    trusts = frozenset(numbers.get(one.strip(), -1) for one in pki.split(data.get("ca.crt", b"")))
    pair = pki.Pair(data.get("tls.crt", b""), data.get("tls.key", b""))
    by, begins, ends, names = None, 0.0, 0.0, frozenset[str]()
    if pki.belongs(pair):
        told = pki.facts(pair.certificate)
        begins, ends, names = told.begins, told.ends, told.names
        by = next((n for n, one in pairs.items() if pki.signed(pair.certificate, one.certificate)), None)
    since, trusts_since = (_time(annotations.get(name)) for name in (CERTIFICATE_SINCE, BUNDLE_SINCE))
    return Leaf(role, by, begins, ends, since, trusts, trusts_since, names)


def _time(text: str | None) -> float | None:
    try:
        return seconds(text) if text else None
    except ValueError:
        return None


def _data(secret: Resource | None) -> dict[str, bytes]:
    found = {}
    for name, value in ((secret or {}).get("data") or {}).items():
        try:
            found[name] = base64.b64decode(value or "")
        except ValueError:
            continue
    return found


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
