"""An authority for tests, and certificates of servers and clients that it signs."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_NAMES = {"CN": NameOID.COMMON_NAME, "O": NameOID.ORGANIZATION_NAME}


def _name(parts: Sequence[tuple[str, str]]) -> x509.Name:
    return x509.Name([x509.NameAttribute(_NAMES[kind], value) for kind, value in reversed(parts)])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


class Authority:
    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name([("CN", name)])
        made = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        made = made.add_extension(usage, critical=True)
        self._certificate = made.sign(self._key, hashes.SHA256())

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
        )

    def write(self, path: Path) -> None:
        path.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, directory: Path, name: str, *, sans: Sequence[str] = (), subject: Sequence[tuple[str, str]] = ()
    ) -> None:
        """NAME.pem and NAME.key, each replaced at once."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._builder(_name(subject or [("CN", name)]), key)
        if sans:
            made = made.add_extension(x509.SubjectAlternativeName([_general(n) for n in sans]), critical=False)
        signed = made.sign(self._key, hashes.SHA256())
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        for ending, content in (("key", private), ("pem", signed.public_bytes(serialization.Encoding.PEM))):
            new = directory / f"{name}.{ending}.new"
            new.write_bytes(content)
            new.replace(directory / f"{name}.{ending}")
