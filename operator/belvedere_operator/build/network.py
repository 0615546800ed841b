"""Services and NetworkPolicies of a pool, and who its gateways are."""

from __future__ import annotations

from belvedere_operator.build.inputs import FLIGHT_PORT, GATEWAY_PORT, HTTP_PORT, MANAGED_BY, Document, PoolInput
from belvedere_operator.names import POOL_LABEL, ROLE_LABEL, label_value, object_name

EXECUTOR = "executor"
SPARK_DRIVERS = ("verify", "build")
"""Roles of Jobs whose pods may be drivers of Spark."""
SPARK_PORTS = (7078, 7079)
"""Of a driver, and of the blocks of drivers and executors, as `belvedere-spark` sets them."""


def services(pool: PoolInput) -> list[Document]:
    """One for users (gateway), headless ones for those that speak Flight, one for metrics."""
    roles = ["coordinator", *(["store"] if pool.owns_store else [])]
    return [
        _service(pool, pool.object_name("gateway"), "gateway", [_port("http", GATEWAY_PORT)]),
        *[
            _service(pool, pool.object_name(role), role, [_port("flight", FLIGHT_PORT)], headless=True)
            for role in roles
        ],
        _service(pool, pool.object_name("metrics"), None, [_port("http", HTTP_PORT)], headless=True),
    ]


def _port(name: str, number: int) -> Document:
    return {"name": name, "port": number, "targetPort": name, "protocol": "TCP"}


def _service(pool: PoolInput, name: str, role: str | None, ports: list[Document], headless: bool = False) -> Document:
    spec: Document = {"selector": pool.selector(role), "ports": ports}
    if headless:
        # Those that are not ready yet are found as well: what a process waits for may be told only by another one.
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    return {"apiVersion": "v1", "kind": "Service", "metadata": pool.meta(name, role), "spec": spec}


def gateway_url(pool: str, namespace: str) -> str:
    return f"http://{object_name(pool, 'gateway')}.{namespace}.svc:{GATEWAY_PORT}"


def network_policies(pool: PoolInput) -> list[Document]:
    """Members talk to each other; the gateway and figures are open to the cluster: there, rights decide."""
    members = {"podSelector": {"matchLabels": pool.selector()}}
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": pool.meta(pool.object_name("members")),
            "spec": {
                "podSelector": {"matchLabels": pool.selector()},
                "policyTypes": ["Ingress"],
                "ingress": [
                    {"from": [members], "ports": [{"port": FLIGHT_PORT, "protocol": "TCP"}]},
                    {"ports": [{"port": HTTP_PORT, "protocol": "TCP"}]},
                    # region servers, wherever they are: a sink takes log entries only
                    *([{"ports": [{"port": pool.sink_port, "protocol": "TCP"}]}] if pool.follows_hbase else []),
                ],
            },
        },
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": pool.meta(pool.object_name("gateway"), "gateway"),
            "spec": {
                "podSelector": {"matchLabels": pool.selector("gateway")},
                "policyTypes": ["Ingress"],
                "ingress": [{"ports": [{"port": GATEWAY_PORT, "protocol": "TCP"}]}],
            },
        },
    ]


def spark_policies(pool: PoolInput) -> list[Document]:
    """Drivers and executors of Spark talk to each other. That executors reach the pool follows from their label."""
    if not pool.has_spark:
        return []
    here = {"key": ROLE_LABEL, "operator": "In", "values": [*SPARK_DRIVERS, EXECUTOR]}
    pods = {"matchLabels": pool.selector(), "matchExpressions": [here]}
    ports = [{"port": port, "protocol": "TCP"} for port in SPARK_PORTS]
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": pool.meta(pool.object_name("spark")),
            "spec": {
                "podSelector": pods,
                "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": pods}], "ports": ports}],
            },
        }
    ]


def spark_accounts(pool: PoolInput) -> list[Document]:
    """Who drivers of Spark are: they may make, look at and delete pods in this namespace, and nothing else."""
    if not pool.has_spark:
        return []
    name = pool.object_name("spark")
    found: list[Document] = [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": pool.meta(name),
            "automountServiceAccountToken": False,
        }
    ]
    if pool.settings.spark_role:
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": pool.settings.spark_role}
        found.append(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": pool.meta(name),
                "roleRef": role,
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": pool.namespace}],
            }
        )
    return found


def accounts(pool: PoolInput) -> list[Document]:
    """The service account of the pods. Only the gateway gets its token, and only to ask Kubernetes who may do what."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": pool.meta(pool.object_name("pool")),
            "automountServiceAccountToken": False,
        }
    ]


def role_binding_name(namespace: str, pool: str) -> str:
    return object_name("belvedere", namespace, pool)


def role_binding(pool: PoolInput) -> list[Document]:
    """For TokenReview and SubjectAccessReview, which belong to no namespace: so nothing owns it, and the finalizer of
    the pool takes it away."""
    if not pool.settings.gateway_role:
        return []
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {
                "name": role_binding_name(pool.namespace, pool.name),
                "labels": {MANAGED_BY: "belvedere-operator", POOL_LABEL: label_value(pool.name)},
            },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": pool.settings.gateway_role,
            },
            "subjects": [{"kind": "ServiceAccount", "name": pool.object_name("pool"), "namespace": pool.namespace}],
        }
    ]
