"""End to end: members of a pool talk to nobody without a certificate of theirs; authorities are replaced under load."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.kube import tls_probe
from tests.kube.installed import READY_SECONDS, SHOP, Installed, Load
from tests.kube.kubernetes import CommandFailed, until

pytestmark = [pytest.mark.timeout(1200), pytest.mark.slow]
NAME = f"members.default.{SHOP}.belvedere.internal"
ROLES = ("coordinator", "distributor", "viewserver", "store")


def files(shop: Installed, secret: str) -> dict[str, str]:
    data = shop.get("secret", secret)["data"]
    return {name: base64.b64decode(value).decode() for name, value in data.items()} | {"name": NAME}


def probe(shop: Installed, addresses: list[str], shown: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """What each port says to each of these, asked from a pod that the NetworkPolicy would keep away, had the cluster
    of the tests a network that knows policies."""
    given = f"CERTIFICATES={json.dumps(shown)}"
    words = ("exec", "-i", "deploy/editor", "--", "env", given, "python", "-", ",".join(addresses))
    found: dict[str, dict[str, str]] = json.loads(shop.kubectl(*words, stdin=tls_probe.program()).splitlines()[-1])
    return found


def ports(shop: Installed) -> list[str]:
    return [f"{pod['status']['podIP']}:7400" for role in ROLES for pod in shop.pods(role)]


def test_members_answer_nobody_without_a_certificate_of_their_pool(shop: Installed) -> None:
    ours = files(shop, "default-tls-client")
    anonymous = {"ca.crt": ours["ca.crt"], "name": NAME}
    # Certificates of another authority: that of another pool.
    pool = {"apiVersion": "belvedere.dev/v1alpha1", "kind": "ViewPool", "metadata": {"name": "other"}}
    quiet = {"replicas": 1, "distributors": 1, "coordinators": 1, "gateways": 1, "reclaimPolicy": "Delete"}
    shop.cluster.apply(pool | {"spec": quiet}, namespace=SHOP)

    def issued() -> bool:
        try:
            return bool(shop.get("secret", "other-tls-client")["data"]["tls.crt"])
        except (CommandFailed, KeyError):
            return False

    until(issued, READY_SECONDS, "certificates of the other pool")
    stranger = files(shop, "other-tls-client")
    stranger["ca.crt"] = ours["ca.crt"]
    mistaken = ours | {"name": "members.other.pool"}
    shown = {"ours": ours, "anonymous": anonymous, "stranger": stranger, "mistaken": mistaken}

    def told_by_all() -> bool:
        """A pod may have come this moment, and a busy one may not answer in time; none may let a stranger in."""
        found = probe(shop, ports(shop), shown)
        for address, told in found.items():
            assert told["plain"] == told["anonymous"] == told["stranger"] == "refused", (address, told)
            assert told["mistaken"] != "answered", (address, told)
        known = [told["ours"] == "answered" and "not trusted" in told["mistaken"] for told in found.values()]
        return len(found) >= 6 and all(known)

    until(told_by_all, READY_SECONDS, "every member to know its own and nobody else")
    shop.kubectl("delete", "viewpool", "other", "--timeout=400s")
    assert shop.condition("viewpool", "default", "Secured").startswith("True MutualTLS")


def test_a_client_without_the_credentials_of_the_pool_sees_nothing_in_zookeeper(shop: Installed) -> None:
    """Of the bundled ZooKeeper, which pools share: what the nodes of this one are, nobody learns or changes."""
    where = shop.get("viewpool", "default")["status"]["zookeeper"]
    hosts, _, path = where.partition("/")
    script = f"""
import json, sys
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
root, found = "/{path}/belvedere/default", {{}}
for name, auth in (("ours", [("digest", sys.argv[1])]), ("nobody", []), ("wrong", [("digest", "belvedere:guess")])):
    client = KazooClient({hosts!r}, auth_data=auth)
    client.start(20)
    requests = [
        lambda: client.get(root + "/record"),
        lambda: client.get_children(root),
        lambda: client.set(root + "/members", b""),
        lambda: client.create(root + "/" + name),
    ]
    found[name] = []
    for request in requests:
        try:
            request()
            found[name].append(True)
        except NoAuthError:
            found[name].append(False)
    client.stop()
print(json.dumps(found))
"""
    line = files(shop, "default-zookeeper")["credentials"].strip()
    words = ("exec", "-i", "deploy/editor", "--", "python", "-", line)
    found: dict[str, Any] = json.loads(shop.kubectl(*words, stdin=script).splitlines()[-1])
    assert found == {"ours": [True] * 4, "nobody": [False] * 4, "wrong": [False] * 4}


@pytest.mark.long
def test_authorities_are_replaced_under_load_and_no_pod_restarts(shop: Installed) -> None:
    def authority() -> list[str]:
        return sorted(shop.get("secret", "default-authority")["data"])

    def pods() -> dict[str, int]:
        return {
            pod["metadata"]["name"]: sum(one["restartCount"] for one in pod["status"]["containerStatuses"])
            for role in (*ROLES, "gateway")
            for pod in shop.pods(role)
        }

    before, old = pods(), files(shop, "default-tls-client")
    (number,) = {int(name.partition(".")[0]) for name in authority()}
    wanted = [f"{number + 1}.crt", f"{number + 1}.key"]
    with Load(shop, seed=95) as load:
        with shop.timed("rotation of the authority of a pool, under load"):
            shop.kubectl("annotate", "viewpool", "default", "--overwrite", f"belvedere.dev/rotate={number}")
            until(lambda: len(authority()) == 4, READY_SECONDS, "a second authority")
            load.more()
            until(lambda: authority() == wanted, 800.0, "the end of the first one")
        load.more(4)

        def ended() -> bool:
            """Every port shows a certificate of the new authority, and lets nobody in with one of the old."""
            ours = files(shop, "default-tls-client")
            late = old | {"ca.crt": ours["ca.crt"]}
            told = probe(shop, ports(shop), {"ours": ours, "late": late})
            return all(each["ours"] == "answered" and each["late"] == "refused" for each in told.values())

        until(ended, READY_SECONDS, "the old authority to be of no use")
        load.more()
    assert load.result["writes"] > 0
    assert pods() == before, "nobody was replaced or started anew"
    for name in ("spend", "order_lines", "city_revenue"):
        assert "equal a recomputation" in shop.verify(name)
    shop.told("ViewPool", "default", "AuthorityIntroduced: ", "AuthorityInForce: ", "AuthorityRetired: ")
