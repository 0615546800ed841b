"""`python -m belvedere_operator`: one replica of the operator."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import ssl
import sys
import threading
import time
from pathlib import Path
from typing import Any

from belvedere_operator.admission.certificates import Certificates, CertificateSecret, from_files
from belvedere_operator.admission.webhook import PATH, Webhook
from belvedere_operator.api.reading import read
from belvedere_operator.api.view_pool import SparkSpec
from belvedere_operator.external.metrics_api import SCALING, ExternalMetrics
from belvedere_operator.gateway import Credentials, Gateway
from belvedere_operator.installation import AggregationLayer, Installation, server_names
from belvedere_operator.kube.client import Kube, KubeError
from belvedere_operator.kube.config import NoCluster, find_access
from belvedere_operator.kube.lease import LeaderLease
from belvedere_operator.metrics import Metrics
from belvedere_operator.process import Leading, Operator, identity
from belvedere_operator.reconcile.gateways import Gateways, Locate, by_service
from belvedere_operator.reconcile.pool_round import Cluster, PoolRounds
from belvedere_operator.reconcile.resources import PoolKey, Resources
from belvedere_operator.reconcile.sampling import Sampling
from belvedere_operator.serving import Answer, Request, Server
from belvedere_operator.settings import Settings

log = logging.getLogger("belvedere_operator")
REFRESH_S = 300.0


def options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="belvedere-operator", description="The Kubernetes operator of Belvedere.")

    def option(name: str, default: Any, help: str, **more: Any) -> None:
        variable = "BELVEDERE_OPERATOR_" + name.upper().replace("-", "_")
        given = os.environ.get(variable, default)
        parser.add_argument(f"--{name}", default=given, help=f"{help} [env: {variable}]", **more)

    default = Settings()
    option("image", default.image, "image of pools that name none")
    option("image-pull-policy", default.image_pull_policy, "when it is pulled")
    option("zookeeper", "", "hosts of the ZooKeeper for pools that name none")
    option("zookeeper-credentials", "true", "give each pool credentials of its own there: true or false")
    option("zookeeper-authority", "", "PEM file of who signed its certificates: pools speak TLS with it")
    option("namespace", os.environ.get("POD_NAMESPACE", default.namespace), "where the operator runs")
    option("name", default.name, "of its Service, lease and secret")
    option("watch", "", "namespaces to look after, separated by commas; none: all")
    option("compiler", "", "URL of a gateway over an empty database, for pools that have no gateway yet")
    option("gateway-url", "", "URL of gateways, with {pool} and {namespace}; default: their Service")
    option("gateway-token", "", "file with the token that gateways are shown")
    option("gateway-role", default.gateway_role, "ClusterRole with which gateways ask who may do what")
    option("spark", "{}", "jobs of Spark in pools that say nothing else: JSON as spec.spark of a ViewPool")
    option("spark-role", default.spark_role, "ClusterRole that drivers of Spark have in their namespace")
    option("external-metrics", "true", "serve external.metrics.k8s.io: true or false")
    option("certificates", "", "directory with ca.crt, tls.crt and tls.key; none: the operator makes its own")
    option("rotation-pause", "600", "seconds that pools are given to read new certificates", type=float)
    option("owner", "", "ClusterRole with which the operator's cluster-wide objects go")
    option("base-url", "", "where the API server reaches the operator, if not by its Service")
    option("host", "0.0.0.0", "where to listen")
    option("http-port", "8080", "of probes and figures", type=int)
    option("https-port", "8443", "of the API server's requests", type=int)
    option("lease-seconds", "15", "how long a leader may be silent", type=float)
    option("log-level", "info", "debug, info, warning or error")
    return parser.parse_args(arguments)


def settings_of(given: argparse.Namespace) -> Settings:
    return Settings(
        image=given.image,
        image_pull_policy=given.image_pull_policy,
        zookeeper=given.zookeeper,
        zookeeper_authority=given.zookeeper_authority,
        zookeeper_credentials=given.zookeeper_credentials.lower() == "true",
        namespace=given.namespace,
        name=given.name,
        watched=tuple(part.strip() for part in given.watch.split(",") if part.strip()),
        compiler=given.compiler,
        metrics_provider=given.external_metrics.lower() == "true",
        gateway_role=given.gateway_role,
        spark=read(SparkSpec, json.loads(given.spark or "{}"), "--spark"),
        spark_role=given.spark_role,
        owner=given.owner,
        rotation_pause_s=given.rotation_pause,
        base_url=given.base_url,
    )


def locate_by(template: str) -> Locate:
    def locate(key: PoolKey) -> str:
        return template.format(namespace=key[0], pool=key[1])

    return locate if template else by_service


def credentials_of(file: str) -> Credentials:
    """The token is read each time: it is rotated."""
    if not file:
        return Credentials()
    path = Path(file)
    return Credentials(token=lambda: path.read_text(encoding="utf-8").strip())


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        told = {"time": self.formatTime(record), "level": record.levelname.lower(), "logger": record.name}
        told["message"] = record.getMessage()
        if record.exc_info:
            told["trace"] = self.formatException(record.exc_info)
        return json.dumps(told)


def main(arguments: list[str] | None = None) -> int:
    given = options(sys.argv[1:] if arguments is None else arguments)
    handler = logging.StreamHandler()
    if not sys.stderr.isatty():
        handler.setFormatter(_Json())
    logging.basicConfig(level=given.log_level.upper(), handlers=[handler], force=True)
    try:
        access = find_access()
    except NoCluster as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    settings, metrics = settings_of(given), Metrics()
    kube = Kube(access)
    credentials, locate = credentials_of(given.gateway_token), locate_by(given.gateway_url)
    installation = Installation(kube, settings)
    # The API server waits ten seconds for a verdict, in which both may have to be asked.
    quick = Gateways(credentials, locate, timeout=4.0 if settings.compiler else 8.0)
    compiler = Gateway(settings.compiler, timeout=4.0) if settings.compiler else None
    layer = AggregationLayer(kube)
    webhook = Webhook(kube, quick, compiler, metrics)
    external = ExternalMetrics(kube, Sampling(quick), metrics, layer.callers)

    def lead() -> Leading:
        resources = Resources()
        cluster = Cluster(installation.capabilities, installation.other_provider)
        rounds = PoolRounds(kube, resources, Gateways(credentials, locate), settings, cluster, metrics=metrics)
        return Leading(access, kube, resources, rounds, settings.watched, metrics)

    lease = LeaderLease(kube, settings.namespace, settings.name, identity(), seconds=given.lease_seconds)
    operator = Operator(lease, lead, metrics)

    def http(request: Request) -> Answer:
        return external.for_keda(request) if request.path.startswith(SCALING) else operator.answer(request)

    def https(request: Request) -> Answer:
        return webhook.answer(request) if request.path == PATH else external.answer(request)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    keeper = _CertificateKeeper(kube, settings, given.certificates, context, lease, installation)
    layer.load_into(context)
    keeper.refresh()
    servers = [Server(given.host, given.http_port, http), Server(given.host, given.https_port, https, context)]
    for server in servers:
        server.start()
    log.info("probes on port %d, the API server's requests on port %d", servers[0].port, servers[1].port)
    threading.Thread(target=keeper.run, name="certificates", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: operator.stop())
    code = operator.run()
    for server in servers:
        server.close()
    kube.close()
    return code


class _CertificateKeeper:
    """Looks after the certificate, and after the objects that name its authority."""

    def __init__(
        self,
        kube: Kube,
        settings: Settings,
        folder: str,
        context: ssl.SSLContext,
        lease: LeaderLease,
        installation: Installation,
    ) -> None:
        self._folder, self._context, self._lease, self._installation = folder, context, lease, installation
        self._secret = CertificateSecret(kube, settings.namespace, f"{settings.name}-tls", server_names(settings))
        self._ensured = float("-inf")
        self._found: Certificates | None = None

    def refresh(self) -> None:
        found = from_files(Path(self._folder)) if self._folder else self._secret.get()
        if found != self._found:
            found.load_into(self._context)
            self._found, self._ensured = found, float("-inf")

    def run(self) -> None:
        refreshed = time.monotonic()
        while True:
            time.sleep(1.0)
            try:
                if time.monotonic() - refreshed >= REFRESH_S:
                    refreshed = time.monotonic()
                    self.refresh()
                if self._lease.leads and time.monotonic() - self._ensured >= REFRESH_S and self._found is not None:
                    self._installation.ensure(self._found)
                    self._ensured = time.monotonic()
            except (KubeError, OSError) as error:
                log.warning("certificates: %s", error)


if __name__ == "__main__":
    sys.exit(main())
