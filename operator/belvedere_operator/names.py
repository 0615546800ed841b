"""Names: what a resource is called in SQL, and what the objects of a pool are called in Kubernetes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from belvedere_operator.api import GROUP

MANAGER = "belvedere-operator"
"""Who writes: the field manager of what is applied, the source of Events."""
POOL_LABEL = f"{GROUP}/pool"
ROLE_LABEL = f"{GROUP}/role"
VIEW_LABEL = f"{GROUP}/view"
TRIAL_LABEL = f"{GROUP}/trial"
REQUEST = f"{GROUP}/request"
"""Annotation of Jobs that somebody asked for: with which words."""
VIEWS = f"{GROUP}/views"
"""Annotation of Jobs that work on several views: their names in SQL."""
ENGINE_LABEL = f"{GROUP}/engine"
"""Of Jobs: what computes, duckdb or spark."""
VERIFY = f"{GROUP}/verify"
"""Annotation of a view: each new text asks for one more verification, by the engine that it begins with: `spark/2`."""
REPAIR = f"{GROUP}/repair"
"""Annotation of a view: each new text asks for a repair. `dry-run/…` only tells, `all/…` makes the view anew."""
MADE_ON_DEMAND = f"{GROUP}/made-on-demand"
PAUSED = f"{GROUP}/paused"
"""Annotation: as long as it is "true" the operator leaves the resource, and what belongs to it, as they are."""
ZOOKEEPER_PATH = f"{GROUP}/zookeeper-path"
ROTATE = f"{GROUP}/rotate"
"""Annotation of a pool: each new text asks for a new authority of its certificates."""
ROTATED = f"{GROUP}/rotated"
"""The text of that annotation that was answered last; on the Secret of authorities."""
CERTIFICATE_SINCE, BUNDLE_SINCE = f"{GROUP}/certificate-since", f"{GROUP}/authorities-since"
"""Annotations of a role's Secret: when its certificate, and whom it trusts, were written."""
TLS = f"{GROUP}/tls"
"""Annotation of pods: whether they speak TLS. All of a pool do, or none."""
FINALIZER = f"{GROUP}/operator"
DEFAULT_POOL = "default"
MOST_CHARACTERS = 52
"""Of the name of an object, so that names made from it (of pods, of Jobs) stay within Kubernetes' 63."""


def sql_name(resource: Mapping[str, Any]) -> str:
    """`spec.name`, else the name of the resource with underscores for dashes, as manifests have it everywhere."""
    given = (resource.get("spec") or {}).get("name")
    return str(given) if given else str(resource["metadata"]["name"]).replace("-", "_")


def pool_of(resource: Mapping[str, Any]) -> str:
    return str((resource.get("spec") or {}).get("pool") or DEFAULT_POOL)


def object_name(*parts: str) -> str:
    """`shop-viewserver`; long ones are cut, with a digest so that they stay different. Dots become dashes."""
    name = "-".join(parts).replace(".", "-")
    if len(name) <= MOST_CHARACTERS:
        return name
    digest = hashlib.sha256("-".join(parts).encode()).hexdigest()[:8]
    return f"{name[: MOST_CHARACTERS - 9].rstrip('-')}-{digest}"


def label_value(name: str) -> str:
    """A label holds 63 characters; names of resources may have 253."""
    if len(name) <= 63:
        return name
    return f"{name[:54].rstrip('-.')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def paused(resource: Mapping[str, Any]) -> bool:
    return str((resource["metadata"].get("annotations") or {}).get(PAUSED, "")).lower() == "true"
