"""How the API server is reached: from inside a pod by its service account, else by a kubeconfig."""

from __future__ import annotations

import base64
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class NoCluster(Exception):
    """Nothing says how the API server is reached, or what says so cannot be used; the text says what would."""


@dataclass(frozen=True, slots=True)
class Access:
    """An API server and who asks. Files are read again when they change: tokens of service accounts are rotated."""

    server: str
    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    token: str | None = None
    token_file: Path | None = None
    verify: bool = True
    namespace: str = "default"

    def bearer(self) -> str | None:
        if self.token_file is not None:
            return self.token_file.read_text(encoding="utf-8").strip()
        return self.token


def find_access() -> Access:
    """KUBECONFIG if it is set, the service account of the pod, else ~/.kube/config."""
    named = os.environ.get("KUBECONFIG")
    if not named and (SERVICE_ACCOUNT / "token").exists():
        return of_service_account()
    path = Path(named.split(os.pathsep)[0]) if named else Path.home() / ".kube" / "config"
    if not path.exists():
        raise NoCluster(f"no cluster: not in a pod, and {path} is not there; set KUBECONFIG")
    return of_kubeconfig(path)


def of_service_account(folder: Path = SERVICE_ACCOUNT) -> Access:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    namespace = folder / "namespace"
    return Access(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        authority=folder / "ca.crt",
        token_file=folder / "token",
        namespace=namespace.read_text(encoding="utf-8").strip() if namespace.exists() else "default",
    )


def of_kubeconfig(path: Path) -> Access:
    """The current context. Helpers that are run to get a token are for people's machines, and are not run here."""
    config: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8")) or {}

    def named(kind: str, name: object) -> dict[str, Any]:
        for one in config.get(kind) or ():
            if one.get("name") == name:
                found: dict[str, Any] = one.get(kind.removesuffix("s")) or {}
                return found
        raise NoCluster(f"{path} has no entry {name!r} in {kind}")

    context = named("contexts", config.get("current-context"))
    cluster, user = named("clusters", context.get("cluster")), named("users", context.get("user"))
    if "exec" in user or "auth-provider" in user:
        raise NoCluster(
            f"user {context.get('user')!r} of {path} gets its token from a program; give a token or a certificate"
        )
    return Access(
        server=str(cluster["server"]).rstrip("/"),
        authority=_file(cluster, "certificate-authority", path),
        certificate=_file(user, "client-certificate", path),
        key=_file(user, "client-key", path),
        token=user.get("token"),
        token_file=_file(user, "tokenFile", path),
        verify=not cluster.get("insecure-skip-tls-verify", False),
        namespace=context.get("namespace", "default"),
    )


def _file(entry: dict[str, Any], name: str, config: Path) -> Path | None:
    if data := entry.get(f"{name}-data"):
        handle, written = tempfile.mkstemp(prefix="belvedere-", suffix=".pem")  # only its owner may read it
        with os.fdopen(handle, "wb") as file:
            file.write(base64.b64decode(data))
        return Path(written)
    return config.parent / entry[name] if entry.get(name) else None
