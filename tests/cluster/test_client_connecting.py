"""URLs of clusters, and what is said when nobody is there."""

from __future__ import annotations

import socket

import pytest

import belvedere
from belvedere.cluster.client.connecting import addresses
from belvedere.errors import DataError, PeerUnavailable


def test_urls_name_coordinators() -> None:
    assert addresses("belvedere://a:1,b.example:65535/") == ["grpc://a:1", "grpc://b.example:65535"]
    assert addresses("belvedere+tls://[::1]:80") == ["grpc+tls://[::1]:80"]


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("shop.bv", "it begins with belvedere:// or belvedere"),
        ("http://a:1", "it begins with belvedere://"),
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
