"""The gateway of a pool from outside of the cluster: through the API server's proxy for Services, without port-forward.

    kubectl proxy (loopback) -> API server -> Service of the gateway

The API server takes the `Authorization` header for itself and takes it away, so who asks is said to the gateway in
`Belvedere-Authorization`. Who may not use the proxy (`get services/proxy`) gives `--url` of a gateway that is reached
in another way.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import urllib3

from belvedere_operator.build.inputs import GATEWAY_PORT
from belvedere_operator.names import object_name
from belvedere_operator.plugin.cluster import Kubectl, KubectlFailed

TIMEOUT = urllib3.Timeout(connect=5.0, read=3600.0)


class GatewayRefused(Exception):
    """The gateway, or what is before it, said no."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A gateway that answers at `base`."""

    base: str
    token: str
    header: str
    http: urllib3.PoolManager

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        accept: str = "application/json",
        content_type: str = "application/json",
    ) -> bytes:
        headers = {"Accept": accept} | ({self.header: f"Bearer {self.token}"} if self.token else {})
        if body is not None:
            headers["Content-Type"] = content_type
        url = self.base + path + (f"?{urllib.parse.urlencode(query)}" if query else "")
        try:
            answer = self.http.request(method, url, body=body, headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise GatewayRefused(f"{self.base} does not answer: {error}") from error
        if answer.status >= 400:
            raise GatewayRefused(_reason(answer.status, answer.data))
        return bytes(answer.data)

    def json(self, method: str, path: str, query: Mapping[str, str] | None = None, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        return json.loads(self.ask(method, path, query, data))


def _reason(status: int, data: bytes) -> str:
    try:
        told = json.loads(data)
    except ValueError:
        return f"HTTP {status}: {data.decode(errors='replace')[:300]}"
    if told.get("kind") == "Status":
        hint = ""
        if status == 403:
            hint = (
                "; you need `get` and `create` on services/proxy, or --url of a gateway that you reach in another way"
            )
        return f"the API server: {told.get('message')}{hint}"
    hint = f"; {told['hint']}" if told.get("hint") and told["hint"] not in str(told.get("detail")) else ""
    if told.get("error") == "NotAuthenticated":
        hint += "; give --token, or --account with the name of a service account"
    return f"{told.get('detail') or told}{hint}"


def service_path(namespace: str, pool: str) -> str:
    """Of the gateway, below the API server."""
    name = object_name(pool, "gateway")
    return f"/api/v1/namespaces/{namespace}/services/http:{name}:{GATEWAY_PORT}/proxy"


@contextlib.contextmanager
def reached(kubectl: Kubectl, pool: str, *, url: str = "", token: str = "", account: str = "") -> Iterator[Reached]:
    """For as long as the block runs."""
    shown = token or (kubectl.account_token(account) if account else "")
    http = urllib3.PoolManager(timeout=TIMEOUT, retries=False)
    if url:
        yield Reached(url.rstrip("/"), shown, "Authorization", http)
        return
    shown = shown or kubectl.own_token()
    with _proxy(kubectl) as address:
        path = service_path(kubectl.current_namespace(), pool)
        yield Reached(address + path, shown, "Belvedere-Authorization", http)


@contextlib.contextmanager
def _proxy(kubectl: Kubectl) -> Iterator[str]:
    """kubectl's own proxy, on a free port of loopback, for the Services of this namespace only."""
    only = f"^/api/v1/namespaces/{re.escape(kubectl.current_namespace())}/services/"
    words = kubectl.words("proxy", "--port=0", "--address=127.0.0.1", f"--accept-paths={only}", "--reject-methods=^$")
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    try:
        line = process.stdout.readline()
        found = re.search(r"127\.0\.0\.1:[0-9]+", line)
        if found is None:
            process.terminate()
            raise KubectlFailed(process.stderr.read().strip() or f"kubectl proxy says {line.strip()!r}")
        yield f"http://{found[0]}"
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()
        process.stderr.close()
