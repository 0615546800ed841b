"""The three custom resource definitions, made from the typed API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from belvedere_operator.api import GROUP, VERSION
from belvedere_operator.api.base_table import BaseTableSpec, BaseTableStatus
from belvedere_operator.api.materialized_view import MaterializedViewSpec, MaterializedViewStatus
from belvedere_operator.api.schema import object_schema
from belvedere_operator.api.view_pool import ViewPoolSpec, ViewPoolStatus

CATEGORY = "belvedere"


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """A column of `kubectl get`; a wide one is shown with -o wide only."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False
    description: str = ""

    def schema(self) -> dict[str, Any]:
        found: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        if self.description:
            found["description"] = self.description
        return found | ({"priority": 1} if self.wide else {})


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of resource."""

    name: str
    plural: str
    short: str
    description: str
    spec: type
    status: type
    columns: tuple[PrinterColumn, ...]
    scaled: bool = False

    @property
    def singular(self) -> str:
        return self.name.lower()

    @property
    def file(self) -> str:
        return f"{GROUP}_{self.plural}.yaml"


def _condition(type: str, field: str = "status") -> str:
    return f'.status.conditions[?(@.type=="{type}")].{field}'


AGE = PrinterColumn("Age", ".metadata.creationTimestamp", "date")
READY = PrinterColumn("Ready", _condition("Ready"))
REASON = PrinterColumn("Reason", _condition("Ready", "reason"), wide=True)

BASE_TABLE = Kind(
    "BaseTable",
    "basetables",
    "bt",
    "A table that users write: typed columns and a primary key. Views follow its changes.",
    BaseTableSpec,
    BaseTableStatus,
    (
        PrinterColumn("Pool", ".spec.pool"),
        READY,
        PrinterColumn("Key", ".spec.key"),
        AGE,
        PrinterColumn("Rows", ".status.rows", "integer", wide=True),
        PrinterColumn("Dependants", ".status.dependants", wide=True),
        REASON,
    ),
)
MATERIALIZED_VIEW = Kind(
    "MaterializedView",
    "materializedviews",
    "mv",
    "A query over base tables and other views, kept exact and fresh while they change.",
    MaterializedViewSpec,
    MaterializedViewStatus,
    (
        PrinterColumn("Pool", ".spec.pool"),
        READY,
        PrinterColumn("Fresh", _condition("Fresh")),
        PrinterColumn("Lag", ".status.lag"),
        PrinterColumn("Rows", ".status.rows", "integer"),
        AGE,
        PrinterColumn("Zones", ".status.zonePath", wide=True),
        PrinterColumn("Epoch", ".status.epoch", "integer", wide=True),
        PrinterColumn("Size", ".status.size", wide=True),
        PrinterColumn("Verified", ".status.lastVerification.time", "date", wide=True),
        REASON,
    ),
)
VIEW_POOL = Kind(
    "ViewPool",
    "viewpools",
    "vp",
    "The processes that maintain views together: coordinators, distributors, view servers, gateways and a store.",
    ViewPoolSpec,
    ViewPoolStatus,
    (
        READY,
        PrinterColumn("Desired", ".spec.replicas", "integer"),
        PrinterColumn("Servers", ".status.readyReplicas", "integer"),
        PrinterColumn("Views", ".status.views", "integer"),
        PrinterColumn("Lag", ".status.lag"),
        AGE,
        PrinterColumn("Needed", ".status.scaling.desired", "integer", wide=True),
        PrinterColumn("Gateway", ".status.gateway", wide=True),
        REASON,
    ),
    scaled=True,
)
KINDS = (BASE_TABLE, MATERIALIZED_VIEW, VIEW_POOL)
BY_NAME = {kind.name: kind for kind in KINDS}


def definition(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition."""
    subresources: dict[str, Any] = {"status": {}}
    if kind.scaled:
        subresources["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    names = {
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural,
        "singular": kind.singular,
        "shortNames": [kind.short],
        "categories": [CATEGORY],
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": subresources,
        "additionalPrinterColumns": [column.schema() for column in kind.columns],
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "description": kind.description,
                "required": ["spec"],
                "properties": {
                    "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}."},
                    "kind": {"type": "string", "description": f"{kind.name}."},
                    "metadata": {"type": "object"},
                    "spec": object_schema(kind.spec),
                    "status": object_schema(kind.status),
                },
            }
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }
