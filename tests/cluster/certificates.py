"""Certificates for tests, made by openssl: an authority, and whom it has certified."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from belvedere.rpc.addresses import Certificates


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def authority(folder: Path, name: str) -> tuple[Path, Path]:
    """Key and certificate."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(certificate))  # fmt: skip
    return key, certificate


def certified(
    folder: Path, name: str, by: tuple[Path, Path], *, trusts: tuple[Path, Path] | None = None
) -> Certificates:
    """Files of somebody whom this authority has certified, and who trusts it (or another one)."""
    key, request, certificate, names = (folder / f"{name}.{suffix}" for suffix in ("key", "csr", "pem", "ext"))
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
            "-keyout", str(key), "-out", str(request))  # fmt: skip
    names.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    openssl("x509", "-req", "-in", str(request), "-CA", str(by[1]), "-CAkey", str(by[0]), "-CAcreateserial",
            "-days", "2", "-extfile", str(names), "-out", str(certificate))  # fmt: skip
    return Certificates(certificate, key, (trusts or by)[1])


class Mounted:
    """A folder as the kubelet keeps it: files are links into a folder of one version, all switched at once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._version = folder, 0
        folder.mkdir()
        for name in ("tls.crt", "tls.key", "ca.crt"):
            (folder / name).symlink_to(f"..data/{name}")
        self.files = Certificates(folder / "tls.crt", folder / "tls.key", folder / "ca.crt", "localhost")

    def hold(self, files: Certificates, *authorities: tuple[Path, Path]) -> None:
        """A certificate with its key, and these authorities."""
        self._version += 1
        version = self.folder / f"..version-{self._version}"
        version.mkdir()
        shutil.copy(str(files.certificate), version / "tls.crt")
        shutil.copy(str(files.key), version / "tls.key")
        (version / "ca.crt").write_bytes(b"".join(certificate.read_bytes() for _, certificate in authorities))
        link = self.folder / "..switching"
        link.symlink_to(version.name)
        link.rename(self.folder / "..data")
