"""All objects of a pool, and those that it should not have (any more)."""

from __future__ import annotations

from belvedere_operator.build import budgets, monitoring, network, scaling, workloads
from belvedere_operator.build.inputs import Document, PoolInput

Key = tuple[str, str, str]
"""apiVersion, kind and name."""


def objects(pool: PoolInput) -> list[Document]:
    """In the order in which they are applied: what others refer to comes first."""
    return [
        *network.accounts(pool),
        *network.spark_accounts(pool),
        *network.role_binding(pool),
        *network.services(pool),
        *network.network_policies(pool),
        *network.spark_policies(pool),
        *budgets.budgets(pool),
        *workloads.store(pool),
        *workloads.deployments(pool),
        *monitoring.service_monitors(pool),
        *scaling.autoscalers(pool),
    ]


def key(document: Document) -> Key:
    return document["apiVersion"], document["kind"], document["metadata"]["name"]


def optional_keys(pool: PoolInput) -> list[Key]:
    """Objects that a pool may have had under another spec; what is in here and not in `objects` is deleted."""
    name = pool.object_name("viewserver")
    found: list[Key] = [("autoscaling/v2", "HorizontalPodAutoscaler", name)]
    if pool.capabilities.keda:
        found.append(("keda.sh/v1alpha1", "ScaledObject", name))
    return found
