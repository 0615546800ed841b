"""Runs in a pod: what a port says to whoever asks in plain text, over TLS without a certificate, or with one.

    python - HOST:PORT[,…]      certificates as JSON in the variable CERTIFICATES: {"name": {"ca.crt": …}}

Ports speak HTTP/2 (gRPC): one that lets somebody in answers with its settings.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import sys
import tempfile
from pathlib import Path

HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
SETTINGS = 4
SECONDS = 5.0


def answered(connection: socket.socket) -> bool:
    """Whether the other side speaks HTTP/2 with us."""
    connection.sendall(HELLO)
    head = b""
    while len(head) < 9:
        part = connection.recv(9 - len(head))
        if not part:
            return False
        head += part
    return head[3] == SETTINGS


def tried(host: str, port: int, files: dict[str, str] | None) -> str:
    try:
        with socket.create_connection((host, port), timeout=SECONDS) as plain:
            plain.settimeout(SECONDS)
            if files is None:
                return "answered" if answered(plain) else "refused"
            context = ssl.create_default_context(cadata=files["ca.crt"])
            context.set_alpn_protocols(["h2"])
            if "tls.crt" in files:
                with tempfile.NamedTemporaryFile("w", suffix=".pem") as pair:
                    pair.write(files["tls.crt"] + files["tls.key"])
                    pair.flush()
                    context.load_cert_chain(pair.name)
            with context.wrap_socket(plain, server_hostname=files["name"]) as connection:
                return "answered" if answered(connection) else "refused"
    except ssl.SSLCertVerificationError as error:
        return f"not trusted: {error.verify_message}"
    except (OSError, TimeoutError):
        return "refused"


def main() -> None:
    shown: dict[str, dict[str, str] | None] = {"plain": None, **json.loads(os.environ.get("CERTIFICATES", "{}"))}
    found = {}
    for address in sys.argv[1].split(","):
        host, _, port = address.rpartition(":")
        found[address] = {name: tried(host, int(port), files) for name, files in shown.items()}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()


def program() -> str:
    """For the standard input of a Python elsewhere."""
    return Path(__file__).read_text()
