"""The kinds of resources that the operator reads or writes, and where each lies in the API."""

from __future__ import annotations

import urllib.parse

from belvedere_operator.api import API_VERSION
from belvedere_operator.api.crds import KINDS

PLURALS = {
    **{(API_VERSION, kind.name): kind.plural for kind in KINDS},
    ("v1", "ConfigMap"): "configmaps",
    ("v1", "Event"): "events",
    ("v1", "Namespace"): "namespaces",
    ("v1", "PersistentVolumeClaim"): "persistentvolumeclaims",
    ("v1", "Pod"): "pods",
    ("v1", "Secret"): "secrets",
    ("v1", "Service"): "services",
    ("v1", "ServiceAccount"): "serviceaccounts",
    ("apps/v1", "Deployment"): "deployments",
    ("apps/v1", "StatefulSet"): "statefulsets",
    ("batch/v1", "CronJob"): "cronjobs",
    ("batch/v1", "Job"): "jobs",
    ("policy/v1", "PodDisruptionBudget"): "poddisruptionbudgets",
    ("networking.k8s.io/v1", "NetworkPolicy"): "networkpolicies",
    ("autoscaling/v2", "HorizontalPodAutoscaler"): "horizontalpodautoscalers",
    ("keda.sh/v1alpha1", "ScaledObject"): "scaledobjects",
    ("monitoring.coreos.com/v1", "ServiceMonitor"): "servicemonitors",
    ("coordination.k8s.io/v1", "Lease"): "leases",
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): "clusterrolebindings",
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): "rolebindings",
    ("apiregistration.k8s.io/v1", "APIService"): "apiservices",
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): "customresourcedefinitions",
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"): "validatingwebhookconfigurations",
}


def path_of(api_version: str, kind: str, namespace: str | None = None, name: str | None = None) -> str:
    """Of one resource, or of all of a kind."""
    plural = PLURALS.get((api_version, kind))
    if plural is None:
        raise KeyError(f"{kind} of {api_version}: the operator does not know where it lies; see kinds.py")
    path = f"/api/{api_version}" if api_version == "v1" else f"/apis/{api_version}"
    if namespace:
        path += f"/namespaces/{urllib.parse.quote(namespace, safe='')}"
    path += f"/{plural}"
    return path + (f"/{urllib.parse.quote(name, safe='')}" if name else "")
