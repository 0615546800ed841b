"""Certificates of a pool over months: whatever stops, and whenever, members can always talk to each other."""

from __future__ import annotations

import base64
import datetime
import random
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from belvedere_operator import pki
from belvedere_operator.api.reading import read
from belvedere_operator.api.view_pool import ViewPoolSpec
from belvedere_operator.build.certificates import members_name
from belvedere_operator.build.inputs import PoolInput
from belvedere_operator.decide.certificates import CLIENTS, SERVERS, Authority, Leaf, Plan, Wanted, decide
from belvedere_operator.kube.client import Kube
from belvedere_operator.reconcile.certificates import PoolCertificates
from tests.operator.secrets import Crash, SecretServer

PAUSE = 600.0
HOUR, DAY = 3600.0, 86_400.0
START = datetime.datetime(2027, 1, 1, tzinfo=datetime.UTC).timestamp()
POOL = PoolInput("default", "shop", "uid", read(ViewPoolSpec, {}), zookeeper="zk:2181/x")
ROLES = (*SERVERS, *CLIENTS)


# ---------------------------------------------------------------------- decisions, as tables

NAMES: dict[str, tuple[str, ...]] = {"store": ("a",), "gateway": ("b",)}
WANTED = Wanted(NAMES, 72 * HOUR, 365 * DAY, PAUSE)
NOW = START


def leaf(role: str, by: int | None, *trusts: int, since: float = 5_000, told: float = 5_000, **more: Any) -> Leaf:
    begins = more.pop("begins", NOW - HOUR)
    names = more.pop("names", frozenset(NAMES[role]))
    return Leaf(role, by, begins, begins + 72 * HOUR, NOW - since, frozenset(trusts), NOW - told, names)


def both(by: int | None, *trusts: int, **more: Any) -> list[Leaf]:
    return [leaf(role, by, *trusts, **more) for role in NAMES]


def year(number: int, age: float = 0.0, signs: bool = True) -> Authority:
    return Authority(number, NOW - age, NOW - age + 365 * DAY, signs)


TABLE: list[tuple[str, list[Authority], list[Leaf], Wanted, tuple[int | None, set[int], dict[str, int], set[str]]]] = [
    ("a new pool", [], [], WANTED, (1, set(), {"store": 1, "gateway": 1}, set())),
    ("nothing is due", [year(1)], both(1, 1), WANTED, (None, set(), {}, set())),
    ("half a life is over", [year(1)], both(1, 1, begins=NOW - 36 * HOUR), WANTED,
     (None, set(), {"store": 1, "gateway": 1}, set())),
    ("a bit less is not", [year(1)], both(1, 1, begins=NOW - 35.9 * HOUR), WANTED, (None, set(), {}, set())),
    ("a role has none", [year(1)], [leaf("store", 1, 1)], WANTED, (None, set(), {"gateway": 1}, set())),
    ("one has another name", [year(1)], [leaf("store", 1, 1), leaf("gateway", 1, 1, names=frozenset({"c"}))], WANTED,
     (None, set(), {"gateway": 1}, set())),
    ("a third of the authority is left", [year(1, 244 * DAY)], both(1, 1), WANTED,
     (2, set(), {}, {"store", "gateway"})),
    ("a bit more is not due", [year(1, 243 * DAY)], both(1, 1), WANTED, (None, set(), {}, set())),
    ("it is made and not told", [year(1), year(2)], both(1, 1), WANTED, (None, set(), {}, {"store", "gateway"})),
    ("told to one only, long ago", [year(1), year(2)], [leaf("store", 1, 1, 2), leaf("gateway", 1, 1)], WANTED,
     (None, set(), {}, {"gateway"})),
    ("told a moment ago", [year(1), year(2)], both(1, 1, 2, told=599), WANTED, (None, set(), {}, set())),
    ("known for a while", [year(1), year(2)], both(1, 1, 2, told=600), WANTED,
     (None, set(), {"store": 2, "gateway": 2}, set())),
    ("one has changed", [year(1), year(2)], [leaf("store", 2, 1, 2), leaf("gateway", 1, 1, 2)], WANTED,
     (None, set(), {"gateway": 2}, set())),
    ("all have, a moment ago", [year(1), year(2)], both(2, 1, 2, since=599), WANTED, (None, set(), {}, set())),
    ("all have, for a while", [year(1), year(2)], both(2, 1, 2, since=600), WANTED,
     (None, {1}, {}, {"store", "gateway"})),
    ("one does not know yet that the old one went", [year(2)], [leaf("store", 2, 2), leaf("gateway", 2, 1, 2)], WANTED,
     (None, set(), {}, {"gateway"})),
    ("the secret of authorities was lost", [year(1, signs=False)], both(1, 1), WANTED,
     (2, set(), {}, {"store", "gateway"})),
    ("and the new one is known", [year(1, signs=False), year(2)], both(1, 1, 2), WANTED,
     (None, set(), {"store": 2, "gateway": 2}, set())),
    ("a time in the future", [year(1)], both(1, 1, told=-3600), WANTED, (None, set(), {}, {"store", "gateway"})),
    ("everything has ended", [year(1, 365 * DAY)], both(1, 1, begins=NOW - 73 * HOUR), WANTED,
     (2, set(), {"store": 2, "gateway": 2}, {"store", "gateway"})),
    ("somebody asks", [year(1)], both(1, 1), Wanted(NAMES, 72 * HOUR, 365 * DAY, PAUSE, True),
     (2, set(), {}, {"store", "gateway"})),
    ("somebody asks during a rotation", [year(1), year(2)], both(1, 1, 2, told=1),
     Wanted(NAMES, 72 * HOUR, 365 * DAY, PAUSE, True), (None, set(), {}, set())),
]  # fmt: skip


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case[0])
def test_what_is_to_be_done_follows_from_what_lies_there(case: Any) -> None:
    _, authorities, leaves, wanted, (introduce, retire, issue, tell) = case
    plan = decide(authorities, leaves, wanted, NOW)
    assert (plan.introduce, set(plan.retire), plan.issue, set(plan.tell)) == (introduce, retire, issue, tell)


def test_a_plan_that_was_carried_out_is_not_made_again() -> None:
    for _, authorities, leaves, wanted, _ in TABLE:
        plan = decide(authorities, leaves, wanted, NOW)
        numbers = {one.number for one in authorities} | ({plan.introduce} if plan.introduce else set())
        after = [year(n, next((NOW - a.begins for a in authorities if a.number == n), 0.0)) for n in sorted(numbers)]
        after = [one for one in after if one.number not in plan.retire]
        held = [_after(role, next((one for one in leaves if one.role == role), None), plan) for role in NAMES]
        again = decide(after, held, Wanted(NAMES, 72 * HOUR, 365 * DAY, PAUSE), NOW)
        assert (again.introduce, again.issue, again.tell) == (None, {}, frozenset())


def _after(role: str, before: Leaf | None, plan: Plan) -> Leaf:
    issued, told = role in plan.issue, role in plan.tell or before is None
    begins = NOW if issued or before is None else before.begins
    since, trusts_since = (before.since, before.trusts_since) if before is not None else (NOW, NOW)
    by = plan.issue.get(role, before.by if before is not None else None)
    since, trusts_since = NOW if issued else since, NOW if told else trusts_since
    return Leaf(role, by, begins, begins + 72 * HOUR, since, plan.trust, trusts_since, frozenset(NAMES[role]))


# ---------------------------------------------------------------------- months, with a model of pods


@dataclass
class Months:
    """A pool whose pods read what lies in their Secrets with any delay up to nine tenths of the pause."""

    pool: PoolInput = POOL
    server: SecretServer = field(default_factory=SecretServer)
    now: float = START
    asked: str = ""
    events: list[str] = field(default_factory=list)
    history: list[tuple[float, dict[str, dict[str, bytes]]]] = field(default_factory=list)

    def operator(self) -> PoolCertificates:
        return PoolCertificates(cast(Kube, self.server), lambda: self.now, PAUSE)

    def round(self, operator: PoolCertificates) -> None:
        self.events += [event.reason for event in operator.tend(self.pool, self.asked)]

    def look(self) -> None:
        """What pods may hold now: all that lay there in the time that they may need, seen pair by pair."""
        held = {
            role: {k: base64.b64decode(v) for k, v in self.server.secrets[f"default-tls-{role}"]["data"].items()}
            for role in ROLES
            if f"default-tls-{role}" in self.server.secrets
        }
        if not self.history or self.history[-1][1] != held:
            self.history.append((self.now, held))
        oldest = self.now - 0.9 * PAUSE
        while len(self.history) > 1 and self.history[1][0] <= oldest:
            self.history.pop(0)
        versions = {role: {tuple(sorted(at[role].items())) for _, at in self.history if role in at} for role in ROLES}
        for client in ROLES:
            for server in SERVERS:
                for one in versions[client]:
                    for other in versions[server]:
                        assert self.talk(dict(one), dict(other)), f"{client} cannot talk to {server}: {self.events}"

    _talked: dict[tuple[bytes, bytes], tuple[bool, float]] = field(default_factory=dict)

    def talk(self, client: dict[str, bytes], server: dict[str, bytes]) -> bool:
        return self.trusts(client["ca.crt"], server["tls.crt"]) and self.trusts(server["ca.crt"], client["tls.crt"])

    def trusts(self, bundle: bytes, certificate: bytes) -> bool:
        found = self._talked.get((bundle, certificate))
        if found is None:
            good = any(pki.signed(certificate, authority) for authority in pki.split(bundle))
            ends = min([pki.facts(certificate).ends, *(pki.facts(a).ends for a in pki.split(bundle))])
            found = self._talked[bundle, certificate] = (good, ends)
        return found[0] and found[1] > self.now


def weeks(months: Months, operator: PoolCertificates, seconds: float, step: float = 200.0) -> None:
    end = months.now + seconds
    while months.now < end:
        months.round(operator)
        months.look()
        months.now += step


def test_two_lives_of_an_authority_without_anybody_who_looks() -> None:
    spec = {"tls": {"certificateLifetime": "72h", "authorityLifetime": "45d"}}
    months = Months(replace(POOL, spec=read(ViewPoolSpec, spec)))
    weeks(months, months.operator(), 70 * DAY, step=HOUR)
    assert months.events == ["AuthorityIntroduced", "AuthorityInForce", "AuthorityRetired"] * 2
    assert set(months.server.secrets["default-authority"]["data"]) == {"3.crt", "3.key"}


def rotation(months: Months, operator: PoolCertificates) -> None:
    weeks(months, operator, 2 * PAUSE)
    months.asked = "now"
    weeks(months, operator, 6 * PAUSE)


def test_a_rotation_that_somebody_asks_for_happens_once() -> None:
    months = Months()
    rotation(months, months.operator())
    assert months.events == ["AuthorityIntroduced", "AuthorityInForce", "AuthorityRetired"]
    weeks(months, months.operator(), 4 * PAUSE)
    assert len(months.events) == 3, "another operator knows that it was done"


def writes_of_a_rotation() -> int:
    months = Months()
    rotation(months, months.operator())
    return months.server.writes


@pytest.mark.parametrize("away", [0.0, DAY], ids=["back at once", "away for a day"])
def test_an_operator_that_ends_at_any_write_leaves_nothing_broken(away: float) -> None:
    total = writes_of_a_rotation()
    assert total >= 26  # one authority and six certificates; told, changed, retired
    for crash in range(1, total + 1):
        months = Months()
        months.server.crash_at = crash
        operator = months.operator()
        begun = float("inf")
        while months.now < min(begun, START + DAY) + away + 14 * PAUSE:
            if months.now >= begun + 2 * PAUSE:
                months.asked = "now"
            try:
                months.round(operator)
                begun = min(begun, months.now)
            except Crash:
                months.now += away
                operator = months.operator()
            if begun < months.now + 1:
                months.look()
            months.now += 200.0
        found = months.server.secrets["default-authority"]["data"]
        assert set(found) == {"2.crt", "2.key"}, f"a crash at write {crash} of {total}"


def test_of_two_operators_that_both_believe_to_lead_one_wins() -> None:
    """The other one was paused between what it read and what it writes, for as long as a whole rotation."""
    for paused_at in range(1, 8):
        months = Months()
        old, new = months.operator(), months.operator()
        weeks(months, new, 2 * PAUSE)
        months.asked = "now"
        writes = 0

        def others_rotate(months: Months = months, new: PoolCertificates = new, at: int = paused_at) -> None:
            nonlocal writes
            writes += 1
            if writes < at:
                months.server.before_write = others_rotate
                return
            weeks(months, new, 6 * PAUSE)

        months.server.before_write = others_rotate
        months.round(old)
        months.look()
        weeks(months, old, 6 * PAUSE)
        found = months.server.secrets["default-authority"]["data"]
        assert len(found) == 2, f"paused at write {paused_at}: {sorted(found)}"


def test_secrets_that_somebody_deletes_come_back_and_nobody_is_cut_off() -> None:
    chance = random.Random(7)
    for name in ["default-authority", *(f"default-tls-{role}" for role in ROLES)]:
        months = Months()
        operator = months.operator()
        weeks(months, operator, chance.randrange(1, 8) * PAUSE)
        before = months.history[-1][1]
        del months.server.secrets[name]
        operator = months.operator()
        months.round(operator)
        assert name in months.server.secrets
        role = name.removeprefix("default-tls-")
        if role in before:  # pods keep what they have until the new one comes
            months.history[-1] = (months.now, {**months.history[-1][1], role: before[role]})
        weeks(months, operator, 8 * PAUSE)


def test_a_secret_that_goes_between_a_look_and_a_write_is_made_again() -> None:
    months = Months()
    weeks(months, months.operator(), 3 * PAUSE)
    months.asked = "now"
    months.server.before_write = lambda: months.server.secrets.pop("default-authority")
    months.round(months.operator())
    weeks(months, months.operator(), 8 * PAUSE)
    assert len(months.server.secrets["default-authority"]["data"]) == 2


def test_an_authority_that_was_lost_is_replaced_without_a_gap() -> None:
    months = Months()
    weeks(months, months.operator(), 3 * PAUSE)
    del months.server.secrets["default-authority"]
    weeks(months, months.operator(), 6 * PAUSE)
    assert set(months.server.secrets["default-authority"]["data"]) == {"2.crt", "2.key"}


def test_what_others_wrote_into_a_secret_is_replaced() -> None:
    for nonsense in ({"tls.key": b"x"}, {"tls.crt": b"x"}, {"ca.crt": b"x"}, {"tls.crt": b""}):
        months = Months()
        weeks(months, months.operator(), 3 * PAUSE)
        secret = months.server.secrets["default-tls-store"]
        secret["data"] |= {key: base64.b64encode(value).decode() for key, value in nonsense.items()}
        months.round(months.operator())
        months.history.clear()
        months.look()


# ---------------------------------------------------------------------- what is in a certificate


@pytest.fixture(scope="module")
def issued() -> Callable[[str], dict[str, bytes]]:
    months = Months()
    months.now = datetime.datetime.now(datetime.UTC).timestamp()
    months.round(months.operator())
    secrets = months.server.secrets
    return lambda role: {k: base64.b64decode(v) for k, v in secrets[f"default-tls-{role}"]["data"].items()}


def handshake(client: dict[str, bytes], server: dict[str, bytes], folder: Any, name: str) -> str:
    """Between two ends in memory; empty if it succeeds, else why not."""
    (folder / "server.pem").write_bytes(server["tls.crt"] + server["tls.key"])
    (folder / "client.pem").write_bytes(client["tls.crt"] + client["tls.key"])
    inner = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    inner.load_cert_chain(folder / "server.pem")
    inner.verify_mode = ssl.CERT_REQUIRED
    inner.load_verify_locations(cadata=server["ca.crt"].decode())
    outer = ssl.create_default_context(cadata=client["ca.crt"].decode())
    outer.load_cert_chain(folder / "client.pem")
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (outer.wrap_bio(down, up, server_hostname=name), inner.wrap_bio(up, down, server_side=True))
    done = set[int]()
    for _ in range(10):
        for number, end in enumerate(ends):
            try:
                end.do_handshake()
                done.add(number)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return str(error)
    if len(done) < 2:
        return "it did not end"
    try:
        ends[0].write(b"x")
        ends[1].read(1)
    except ssl.SSLError as error:
        return str(error)
    return ""


def test_members_know_each_other_by_one_name_and_a_gateway_cannot_pose_as_a_member(
    issued: Callable[[str], dict[str, bytes]], tmp_path: Any
) -> None:
    name = members_name(POOL)
    assert name == "members.default.shop.belvedere.internal"
    for server in SERVERS:
        for client in ROLES:
            assert handshake(issued(client), issued(server), tmp_path, name) == ""
    assert "Hostname mismatch" in handshake(issued("gateway"), issued("store"), tmp_path, "members.other.shop")
    for posing in CLIENTS:
        assert handshake(issued("viewserver"), issued(posing), tmp_path, name) != ""


def test_another_pool_is_nobody(issued: Callable[[str], dict[str, bytes]], tmp_path: Any) -> None:
    months = Months()
    months.now = datetime.datetime.now(datetime.UTC).timestamp()
    months.round(months.operator())
    data = months.server.secrets["default-tls-viewserver"]["data"]
    stranger = {key: base64.b64decode(value) for key, value in data.items()}
    assert handshake(stranger, issued("store"), tmp_path, members_name(POOL)) != ""
    assert handshake(issued("viewserver"), stranger, tmp_path, members_name(POOL)) != ""
