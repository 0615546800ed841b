"""TLS: certificates of clients and their rights; what is replaced is used, and what is half replaced does no harm."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from belvedere.gateway.connections import certificate_of
from belvedere.gateway.server import ServerOptions, TlsPaths
from belvedere.gateway.token_file import TokenFile
from tests.gateway.certificates import Authority
from tests.gateway.serving import ORDERS, SPEND, Served, embedded

ADMIN = "admin-4e1243bd22c66"
TOKENS = f"""
tokens:
  - {{name: admin, token: {ADMIN}, admin: ["*"]}}
certificates:
  - subject: "CN=ops,O=Example"
    read: ["spend"]
  - san: ops.example
    admin: ["*"]
"""
SERVER = ("localhost", "127.0.0.1")
REFUSED = (httpx.NetworkError, httpx.RemoteProtocolError)
"""By the server, and not because it took too long."""


@contextlib.contextmanager
def guarded(directory: Path, said: list[str] | None = None, **options: Any) -> Iterator[Served]:
    (directory / "tokens.yaml").write_text(TOKENS)
    authenticator = TokenFile(directory / "tokens.yaml")
    with embedded(ServerOptions(port=0, **options), ORDERS, SPEND, authenticator=authenticator, said=said) as found:
        yield found


def ask(
    served: Served, directory: Path, name: str | None, path: str = "/v1/relations/orders/rows", **headers: str
) -> int:
    context = ssl.create_default_context(cafile=directory / "ca.pem")
    if name is not None:
        context.load_cert_chain(directory / f"{name}.pem", directory / f"{name}.key")
    with httpx.Client(verify=context, timeout=60.0) as client:
        return client.get(f"{served.url}{path}", headers=headers).status_code


def peer_serial(served: Served, directory: Path) -> str:
    context = ssl.create_default_context(cafile=directory / "ca.pem")
    with socket.create_connection(served.address) as raw, context.wrap_socket(raw, server_hostname="localhost") as tls:
        found = tls.getpeercert()
        assert found is not None
        return str(found["serialNumber"])


def until(said: list[str], words: str) -> None:
    deadline = time.monotonic() + 60
    while not any(words in one for one in said):
        assert time.monotonic() < deadline, said
        time.sleep(0.05)


def test_certificates_of_clients_have_rights(tmp_path: Path) -> None:
    authority, other = Authority("belvedere test"), Authority("somebody else")
    authority.write(tmp_path / "ca.pem")
    authority.issue(tmp_path, "server", sans=SERVER)
    authority.issue(tmp_path, "ops", subject=(("CN", "ops"), ("O", "Example")))
    authority.issue(tmp_path, "posing", subject=(("CN", "ops,O=Example"),))
    authority.issue(tmp_path, "boss", sans=("ops.example",))
    other.issue(tmp_path, "stranger")
    tls = TlsPaths(tmp_path / "server.pem", tmp_path / "server.key", tmp_path / "ca.pem", optional=True)
    with guarded(tmp_path, tls=tls) as served:
        assert served.url.startswith("https://")
        assert [ask(served, tmp_path, name) for name in (None, "ops", "boss")] == [401, 403, 200]
        assert ask(served, tmp_path, "ops", "/v1/relations/spend/rows") == 200
        assert ask(served, tmp_path, "posing", "/v1/relations/spend/rows") == 401, "a comma in a name ends no name"
        assert ask(served, tmp_path, None, authorization=f"Bearer {ADMIN}") == 200
        with pytest.raises(REFUSED):
            ask(served, tmp_path, "stranger")


def test_who_shows_no_certificate_where_one_is_needed_is_not_heard(tmp_path: Path) -> None:
    authority = Authority("belvedere test")
    authority.write(tmp_path / "ca.pem")
    authority.issue(tmp_path, "server", sans=SERVER)
    authority.issue(tmp_path, "boss", sans=("ops.example",))
    tls = TlsPaths(tmp_path / "server.pem", tmp_path / "server.key", tmp_path / "ca.pem")
    with guarded(tmp_path, tls=tls) as served:
        assert ask(served, tmp_path, "boss") == 200
        with pytest.raises(REFUSED):
            ask(served, tmp_path, None, authorization=f"Bearer {ADMIN}")


def test_a_certificate_that_is_replaced_is_used(tmp_path: Path) -> None:
    authority = Authority("belvedere test")
    authority.write(tmp_path / "ca.pem")
    authority.issue(tmp_path, "server", sans=SERVER)
    with guarded(tmp_path, tls=TlsPaths(tmp_path / "server.pem", tmp_path / "server.key")) as served:
        serial = peer_serial(served, tmp_path)
        authority.issue(tmp_path, "server", sans=SERVER)
        deadline = time.monotonic() + 60
        while peer_serial(served, tmp_path) == serial:
            assert time.monotonic() < deadline, "the new certificate is not used"
            time.sleep(0.1)


def test_a_certificate_without_its_key_leaves_the_one_before_in_force(tmp_path: Path) -> None:
    """Who replaces two files does it one after the other; a server that dies in between serves nobody."""
    authority, said = Authority("belvedere test"), list[str]()
    authority.write(tmp_path / "ca.pem")
    authority.issue(tmp_path, "server", sans=SERVER)
    with guarded(tmp_path, said, tls=TlsPaths(tmp_path / "server.pem", tmp_path / "server.key")) as served:
        serial = peer_serial(served, tmp_path)
        authority.issue(tmp_path, "next", sans=SERVER)
        (tmp_path / "next.pem").replace(tmp_path / "server.pem")
        until(said, "the one before stays in force")
        assert peer_serial(served, tmp_path) == serial
        (tmp_path / "next.key").replace(tmp_path / "server.key")
        until(said, "read again")
        assert peer_serial(served, tmp_path) != serial


def test_an_authority_that_is_taken_away_is_not_trusted_any_more(tmp_path: Path) -> None:
    old, new, said = Authority("old"), Authority("new"), list[str]()
    old.write(tmp_path / "ca.pem")
    old.write(tmp_path / "clients.pem")
    old.issue(tmp_path, "server", sans=SERVER)
    old.issue(tmp_path, "before", sans=("ops.example",))
    new.issue(tmp_path, "after", sans=("ops.example",))
    tls = TlsPaths(tmp_path / "server.pem", tmp_path / "server.key", tmp_path / "clients.pem")
    with guarded(tmp_path, said, tls=tls) as served:
        assert ask(served, tmp_path, "before") == 200
        new.write(tmp_path / "clients.pem")
        until(said, "read again")
        assert ask(served, tmp_path, "after") == 200
        with pytest.raises(REFUSED):
            ask(served, tmp_path, "before")


def test_names_of_a_certificate_are_its_dns_names_and_uris() -> None:
    class Shown:
        def getpeercert(self) -> dict[str, Any]:
            return {
                "subject": ((("organizationName", "Example, Inc."),), (("commonName", 'a "b"'),)),
                "subjectAltName": (("DNS", "a.example"), ("email", "b.example"), ("URI", "spiffe://c")),
            }

    shown: Any = Shown()
    found = certificate_of(shown)
    assert found is not None
    assert found.subject == r"CN=a \"b\",O=Example\, Inc."
    assert found.names == ("a.example", "spiffe://c")
