"""URLs of clusters, and what is said when nobody is there, or nobody any more."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest

import belvedere
from belvedere.cluster.client.connecting import addresses
from belvedere.cluster.transport.flight import FlightTransport
from belvedere.errors import DataError, PeerUnavailable
from belvedere.protocol.ring import MemberId
from belvedere.rpc import client as rpc
from tests.cluster.proxy import Proxy


def test_urls_name_coordinators() -> None:
    assert addresses("belvedere://a:1,b.example:65535/") == ["grpc://a:1", "grpc://b.example:65535"]
    assert addresses("belvedere+tls://[::1]:80") == ["grpc+tls://[::1]:80"]


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("shop.bv", "it begins with belvedere:// or belvedere"),
        ("ftp://a:1", "a gateway's begins with https:// or http://"),
        ("belvedere://", "'' is no host with a port"),
        ("belvedere://a", "'a' is no host with a port"),
        ("belvedere://a:1,b", "'b' is no host with a port"),
        ("belvedere://a:0", "'a:0' is no host with a port"),
        ("belvedere://a:x", "'a:x' is no host with a port"),
    ],
)
def test_what_is_no_url_is_refused_with_what_would_work(url: str, found: str) -> None:
    with pytest.raises(DataError, match="is no URL of a cluster") as refused:
        belvedere.connect(url)
    assert found in str(refused.value)


def test_certificates_and_tls_belong_together() -> None:
    with pytest.raises(DataError, match="certificates are for belvedere"):
        belvedere.connect("belvedere://a:1", certificate="x.pem")
    with pytest.raises(DataError, match="give certificate, key and authority"):
        belvedere.connect("belvedere+tls://a:1", certificate="x.pem")


def test_nobody_there_is_said_with_the_reason() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # taken, and nobody listens
        port = nobody.getsockname()[1]
        with pytest.raises(PeerUnavailable, match=rf"looking for the pool: gave up after 0\.3 s.*127\.0\.0\.1:{port}"):
            belvedere.connect(f"belvedere://127.0.0.1:{port}", timeout=0.3)


class Vanishing(Proxy):
    """A host that can vanish without a word: what is sent to it is lost, and no connection ends."""

    gone = False

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not self.gone:
                    sink.sendall(data)


def test_a_host_that_vanished_is_noticed_before_the_call_has_spent_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    faster = [(name, 300 if "keepalive" in name or "ping" in name else value) for name, value in rpc._CHANNEL]
    monkeypatch.setattr(rpc, "_CHANNEL", faster)
    server, asked = FlightTransport("127.0.0.1", member=MemberId("leader")), threading.Event()

    def vanish(request: bytes) -> bytes:
        proxy.gone = True
        asked.set()
        return b"nobody hears it"

    server.start(lambda *_: None, {"echo": lambda request: bytes(request), "vanish": vanish})
    proxy = Vanishing(int(server.address.rpartition(":")[2]))
    client, address = rpc.RpcClient(), f"grpc://127.0.0.1:{proxy.port}"
    try:
        assert client.call(address, "echo", b"x", 60.0) == b"x"
        with pytest.raises(PeerUnavailable, match="nobody is there"):  # and not that its time is over
            client.call(address, "vanish", b"", 120.0)
        assert asked.is_set()
    finally:
        client.close()
        proxy.stop()
        proxy.sever()
        server.close()
