"""Credentials of pools in the ZooKeeper that they share: one for each, the same whenever it is asked for."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from belvedere_operator.api.reading import read
from belvedere_operator.api.view_pool import ViewPoolSpec
from belvedere_operator.build.inputs import PoolInput
from belvedere_operator.kube.client import Kube, KubeError
from belvedere_operator.reconcile.zookeeper import ZooKeeperCredentials, path_of, shares
from belvedere_operator.settings import Settings

SETTINGS = Settings(namespace="shop")


class Server:
    """Keeps one Secret."""

    def __init__(self) -> None:
        self.found: dict[str, Any] | None = None
        self.faster: dict[str, Any] | None = None

    def get(self, *_: Any) -> dict[str, Any] | None:
        return self.found

    def create(self, resource: dict[str, Any]) -> dict[str, Any]:
        if self.faster is not None:
            self.found = self.faster
            raise KubeError(409, "AlreadyExists", "it is there")
        self.found = resource
        return resource


def pool(path: str = "belvedere/shop/default-1234.owned", spec: dict[str, Any] | None = None) -> PoolInput:
    return PoolInput("default", "shop", "uid", read(ViewPoolSpec, spec or {}), zookeeper=f"zk:2181/{path}")


def line(server: Server, of: PoolInput) -> str:
    credentials = ZooKeeperCredentials(cast(Kube, server), SETTINGS)
    (secret,) = credentials.documents(replace(of, zookeeper_secret=credentials.secret_of(of)))
    assert secret["metadata"]["name"] == "default-zookeeper"
    return base64.b64decode(secret["data"]["credentials"]).decode()


def test_each_pool_has_its_own_and_gets_it_again() -> None:
    server = Server()
    first = line(server, pool())
    user, _, password = first.strip().partition(":")
    assert user == "belvedere" and len(password) == 64
    assert line(server, pool()) == first, "of another operator, with the same key"
    assert line(server, pool("belvedere/shop/other-1234.owned")) != first
    assert line(Server(), pool()) != first, "another installation has another key"


def test_of_two_replicas_that_make_the_key_both_use_the_same() -> None:
    server, other = Server(), Server()
    wanted = line(other, pool())
    server.faster = other.found
    assert line(server, pool()) == wanted


def test_a_key_that_is_none_is_refused_by_name() -> None:
    server = Server()
    server.found = {"data": {"key": base64.b64encode(b"short").decode()}}
    with pytest.raises(KubeError, match="secret shop/belvedere-operator-zookeeper has no key"):
        line(server, pool())


def test_pools_keep_to_how_their_nodes_were_made() -> None:
    credentials = ZooKeeperCredentials(cast(Kube, Server()), SETTINGS)
    assert credentials.secret_of(pool("belvedere/shop/default-1234")) == "", "made without credentials"
    given = {"zookeeper": {"hosts": "zk:1", "credentialsSecret": "mine"}}
    assert credentials.secret_of(pool(spec=given)) == "mine"
    assert credentials.documents(pool(spec=given)) == []
    assert credentials.secret_of(pool(spec={"zookeeper": {"hosts": "zk:1"}})) == ""


def test_pools_of_a_zookeeper_with_tls_get_its_authority(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    settings = replace(SETTINGS, zookeeper_authority=str(file))
    credentials = ZooKeeperCredentials(cast(Kube, Server()), settings)
    wanted = replace(pool("belvedere/shop/default-1234"), zookeeper_tls=credentials.tls_of(pool()))
    with pytest.raises(KubeError, match=r"ca\.crt cannot be read: No such file"):
        credentials.documents(wanted)
    for content in (b"one", b"another"):
        file.write_bytes(content)
        (secret,) = credentials.documents(wanted)
        assert secret["metadata"]["name"] == "default-zookeeper-authority"
        assert base64.b64decode(secret["data"]["ca.crt"]) == content
    own = pool(spec={"zookeeper": {"hosts": "zk:1", "tls": {"secret": "mine", "clientCertificate": True}}})
    told = credentials.tls_of(own)
    assert told is not None and (told.secret, told.client_certificate) == ("mine", True)
    assert credentials.tls_of(pool(spec={"zookeeper": {"hosts": "zk:1"}})) is None


def test_the_path_says_whether_nodes_are_protected() -> None:
    assert path_of("base", "shop", "default", protect=True) == "base/belvedere/shop/default.owned"
    assert path_of("", "shop", "default", protect=False) == "belvedere/shop/default"
    spec = read(ViewPoolSpec, {})
    assert shares(spec, SETTINGS) and not shares(spec, Settings(zookeeper_credentials=False))
    assert not shares(read(ViewPoolSpec, {"zookeeper": {"hosts": "zk:1"}}), SETTINGS)
