"""Who is who in a cluster: its authorities, and a certificate for every component and for the administrator."""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = datetime.timedelta(days=365)
NODE_GROUP, MASTERS = "system:nodes", "system:masters"


@dataclass(frozen=True)
class Authority:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


@dataclass(frozen=True)
class Identity:
    """Whose certificate it is; `hosts`: a server's, else a client's."""

    name: str
    groups: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


def create(directory: Path, server: str, node: str, addresses: tuple[str, ...]) -> None:
    """All keys, certificates and kubeconfigs below a directory, for an API server with this URL."""
    directory.mkdir(parents=True)
    authority = make_authority(directory, "ca")
    front = make_authority(directory, "front-proxy-ca")
    names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
    issue(directory, "apiserver", authority, Identity("kube-apiserver", hosts=("localhost", *names, *addresses)))
    issue(directory, "kubelet-serving", authority, Identity(node, hosts=(node, *addresses)))
    issue(directory, "front-proxy-client", front, Identity("front-proxy-client"))
    users = {
        "admin": Identity("admin", (MASTERS,)),
        "controller-manager": Identity("system:kube-controller-manager"),
        "scheduler": Identity("system:kube-scheduler"),
        "kubelet": Identity(f"system:node:{node}", (NODE_GROUP,)),
        "proxy": Identity("system:kube-proxy"),
    }
    for file, identity in users.items():
        issue(directory, file, authority, identity)
        write_kubeconfig(directory, file, server)
    tokens = ec.generate_private_key(ec.SECP256R1())  # signs those of service accounts
    _write(directory / "service-accounts.key", _private(tokens))
    public = tokens.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _write(directory / "service-accounts.pub", public)


def make_authority(directory: Path, name: str) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(subject, subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write_pair(directory, name, key, certificate)
    return Authority(key, certificate)


def issue(directory: Path, file: str, authority: Authority, identity: Identity) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in identity.groups]
    subject = x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, identity.name)])
    usage = ExtendedKeyUsageOID.SERVER_AUTH if identity.hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        _builder(subject, authority.certificate.subject, key.public_key())
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False
        )  # Python 3.13 asks for it
    )
    if identity.hosts:
        names = x509.SubjectAlternativeName([_general_name(host) for host in identity.hosts])
        builder = builder.add_extension(names, critical=False)
    _write_pair(directory, file, key, builder.sign(authority.key, hashes.SHA256()))


def write_kubeconfig(directory: Path, name: str, server: str) -> None:
    cluster = {"server": server, "certificate-authority": f"{directory}/ca.crt"}
    user = {"client-certificate": f"{directory}/{name}.crt", "client-key": f"{directory}/{name}.key"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "belvedere-test",
        "clusters": [{"name": "belvedere-test", "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": "belvedere-test", "context": {"cluster": "belvedere-test", "user": name}}],
    }
    _write(directory / f"{name}.kubeconfig", json.dumps(config, indent=2).encode())


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ
        .not_valid_after(now + VALID)
    )


def _key_usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _write_pair(directory: Path, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    _write(directory / f"{name}.key", _private(key))
    _write(directory / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM))


def _write(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
