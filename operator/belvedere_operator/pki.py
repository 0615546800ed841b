"""Certificates and authorities: made, read, and told apart. The only place that knows the library for it.

Everything is valid from an hour before it was made: clocks of pods differ.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BACKDATED = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """PEM texts of a certificate and of its key."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Facts:
    """What a certificate says of itself. Times are seconds since 1970; `begins` is when it was made."""

    name: str
    begins: float
    ends: float
    names: frozenset[str]


def authority(name: str, now: datetime.datetime, lasts: datetime.timedelta) -> Pair:
    """One that signs itself, and certificates of others, but no further authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    made = (
        _builder(subject, subject, key.public_key(), now, now + lasts)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(_pem(made), _private(key))


def issue(
    by: Pair, names: Sequence[str], now: datetime.datetime, lasts: datetime.timedelta, *, server: bool, client: bool
) -> Pair:
    """A certificate for these names; the first is what it is called. It ends with its authority at the latest."""
    signer = x509.load_pem_x509_certificate(by.certificate)
    signer_key = serialization.load_pem_private_key(by.key, None)
    assert isinstance(signer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    ends = min(now + lasts, signer.not_valid_after_utc)
    wanted = ((server, ExtendedKeyUsageOID.SERVER_AUTH), (client, ExtendedKeyUsageOID.CLIENT_AUTH))
    purposes = [purpose for is_wanted, purpose in wanted if is_wanted]
    made = (
        _builder(_subject(names[0]), signer.subject, key.public_key(), now, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key()), critical=False)
        .sign(signer_key, hashes.SHA256())
    )
    return Pair(_pem(made), _private(key))


def facts(pem: bytes) -> Facts:
    """ValueError if it is none."""
    found = x509.load_pem_x509_certificate(pem)
    try:
        shown = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = frozenset(_text(name) for name in shown)
    except x509.ExtensionNotFound:
        names = frozenset()
    common = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    begins = (found.not_valid_before_utc + BACKDATED).timestamp()
    return Facts(str(common[0].value) if common else "", begins, found.not_valid_after_utc.timestamp(), names)


def signed(pem: bytes, by: bytes) -> bool:
    """Whether the key of that authority has signed it."""
    try:
        x509.load_pem_x509_certificate(pem).verify_directly_issued_by(x509.load_pem_x509_certificate(by))
    except Exception:  # the library has an exception for each way in which it is not
        return False
    return True


def belongs(pair: Pair) -> bool:
    """Whether the key is that of the certificate."""
    try:
        key = serialization.load_pem_private_key(pair.key, None)
        return key.public_key() == x509.load_pem_x509_certificate(pair.certificate).public_key()
    except (ValueError, TypeError):
        return False


def split(bundle: bytes) -> list[bytes]:
    """The certificates of a file of several, each as PEM; what cannot be read is none."""
    try:
        return [_pem(one) for one in x509.load_pem_x509_certificates(bundle)]
    except ValueError:
        return []


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    ends: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(ends)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _text(name: x509.GeneralName) -> str:
    return str(name.value)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
