"""Disruption budgets: one pod of a role at a time, and never so that a drain of a node waits for ever."""

from __future__ import annotations

from belvedere_operator.build.inputs import Document, PoolInput


def budgets(pool: PoolInput) -> list[Document]:
    """`maxUnavailable: 1` also where there is one pod only: a budget that allows nothing blocks every drain. Pods that
    do not work protect nothing and may always go."""
    roles = ["coordinator", "distributor", "viewserver", "gateway", *(["store"] if pool.owns_store else [])]
    return [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": pool.meta(pool.object_name(role), role),
            "spec": {
                "maxUnavailable": 1,
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
                "selector": {"matchLabels": pool.selector(role)},
            },
        }
        for role in roles
    ]
