"""A real ZooKeeper that speaks TLS: who is let in, and whom a member trusts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyspark
import pytest

from belvedere.cluster.coordination.zookeeper import ZooKeeperCoordination, ZooKeeperCredentials
from belvedere.errors import CoordinationUnavailable, Incompatible
from belvedere.local.child import free_port
from belvedere.local.zookeeper import LocalZooKeeper
from belvedere.rpc.addresses import Certificates
from tests.cluster.certificates import authority, certified
from tests.cluster.coordination_worlds import ids, member
from tests.cluster.zookeeper_server import require_zookeeper

OWNER = ZooKeeperCredentials("belvedere", "s3cret")


@dataclass
class Secure:
    """A server that has a port with TLS and asks for certificates."""

    port: int
    client: Certificates
    colleague: Certificates
    stranger: Certificates
    deceived: Certificates

    def connect(
        self, tls: Certificates | None, credentials: ZooKeeperCredentials | None = OWNER
    ) -> ZooKeeperCoordination:
        return ZooKeeperCoordination(f"localhost:{self.port}/t", "pool", credentials=credentials, tls=tls)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    require_zookeeper()
    netty = sorted((Path(pyspark.__file__).parent / "jars").glob("netty-*.jar"))
    assert netty, "ZooKeeper speaks TLS with Netty, and pyspark has brought it"
    folder = tmp_path_factory.mktemp("zookeeper-tls")
    ours, theirs = authority(folder, "ours"), authority(folder, "theirs")
    own = certified(folder, "server", ours)
    both = folder / "server-both.pem"
    both.write_bytes(Path(str(own.key)).read_bytes() + Path(str(own.certificate)).read_bytes())
    port = free_port()
    settings = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": str(port),
        "secureClientPortAddress": "127.0.0.1",
        "ssl.keyStore.location": str(both),
        "ssl.trustStore.location": str(ours[1]),
    }
    client = certified(folder, "client", ours)
    with LocalZooKeeper(folder / "server", tick_ms=100, sync=False, classes=netty, settings=settings):
        stranger = certified(folder, "stranger", theirs, trusts=ours)
        colleague = certified(folder, "colleague", ours)
        yield Secure(port, client, colleague, stranger, replace(client, authority=theirs[1]))


def test_members_meet_over_tls_with_credentials(secure: Secure) -> None:
    with (
        contextlib.closing(secure.connect(secure.client)) as one,
        contextlib.closing(secure.connect(secure.client)) as other,
    ):
        one.start(20.0)
        one.join(member("a"))
        other.start(20.0)
        deadline = time.monotonic() + 60.0
        while ids(other.members()) != ["a"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    # ZooKeeper takes the subject of a certificate for an identity, too: nodes belong to it beside the credentials.
    for wrong in (ZooKeeperCredentials("belvedere", "wrong"), None):
        with (
            contextlib.closing(secure.connect(secure.colleague, wrong)) as intruder,
            pytest.raises(Incompatible, match="belongs to others: it was made with"),
        ):
            intruder.start(20.0)


# kazoo leaves a socket whose handshake failed to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <ssl:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(lambda secure: secure.stranger, id="a certificate of another authority"),
        pytest.param(lambda secure: secure.deceived, id="a server that somebody else signed"),
        pytest.param(lambda secure: Certificates(authority=secure.client.authority), id="no certificate"),
        pytest.param(lambda secure: None, id="no TLS"),
    ],
)
def test_without_the_right_certificates_nobody_gets_in(
    secure: Secure, shown: Callable[[Secure], Certificates | None]
) -> None:
    with contextlib.closing(secure.connect(shown(secure))) as one, pytest.raises(CoordinationUnavailable):
        one.start(2.0)
