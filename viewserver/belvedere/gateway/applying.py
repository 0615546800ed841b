"""Manifests: each document against the catalog as the ones before it leave it, then all that is accepted as one change.

What would happen is worked out here first, by the same pure functions that the database uses, so a refusal names every
document at fault and a dry run changes nothing. The database decides all the same: its catalog may be newer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

from belvedere import errors
from belvedere.gateway import problems, values
from belvedere.gateway.api import Answer, Call
from belvedere.gateway.forecast import forecast
from belvedere.gateway.visibility import as_visible
from belvedere.model import catalog_change
from belvedere.plan.nodes import Plan
from belvedere.plan.planner import plan_views
from belvedere.sql import statements as st
from belvedere.sql.catalog import Catalog, TableDef
from belvedere.sql.manifest_target import applicable
from belvedere.sql.yaml_document import YamlDocument, documents

Require = Callable[[Call, st.Statement], None]


@dataclass(slots=True)
class _Document:
    """One document and what becomes of it."""

    text: str
    kind: str = ""
    name: str = ""
    action: str = "refused"
    problem: errors.BelvedereError | None = None
    forecast: dict[str, Any] | None = None
    told: dict[str, Any] = field(default_factory=dict)


def apply_manifests(call: Call, text: str, *, wait: bool, dry_run: bool, partial: bool, require: Require) -> Answer:
    if call.database.read_only:
        raise errors.ReadOnly("the database is open for reading only here; apply where it is open for writing")
    found = [_Document(_alone(document), *_names(document)) for document in documents(text)]
    if not found:
        raise errors.BadRequest("the body has no documents: nothing to apply")
    _work_out(call, found, dry_run, require)
    refused = [one for one in found if one.problem is not None]
    if refused and not partial:
        return _refusal(call, found, refused)
    token = None
    accepted = [one for one in found if one.problem is None]
    if not dry_run and accepted:
        call.attempted = {"action": "apply", "relations": [f"{one.name}: {one.action}" for one in accepted]}
        tokens = call.database.db.apply_manifest("---\n".join(one.text for one in accepted), wait=wait)
        token = str(tokens[-1]) if tokens else f"e{call.database.newest()}"
    body = {"token": token, "documents": [_shown(one, call.request) for one in found]}
    headers = () if token is None else (("belvedere-token", token),)
    audit = None
    if token is not None:
        audit = {"action": "apply", "token": token, "relations": [f"{one.name}: {one.action}" for one in found]}
    return Answer(values.dumps(body), headers=headers, audit=audit)


def _alone(document: YamlDocument) -> str:
    """As a text of its own. Empty documents before it keep its number, which errors tell."""
    return "---\n" * document.number + yaml.safe_dump(document.value, sort_keys=False, allow_unicode=True)


def _names(document: YamlDocument) -> tuple[str, str]:
    """As far as they can be told before it was read."""
    value = document.value if isinstance(document.value, dict) else {}
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return str(value.get("kind", "")), str(name or f"document {document.number}")


def _work_out(call: Call, found: list[_Document], dry_run: bool, require: Require) -> None:
    call.database.refresh()
    catalog = call.database.db.catalog
    plan, _ = call.database.db._plan()
    taken: set[str] = set()
    for one in found:
        try:
            catalog, plan = _one(call, one, catalog, plan, taken, require, dry_run)
        except errors.BelvedereError as error:
            one.problem, one.action = error, "refused"


def _one(
    call: Call, one: _Document, catalog: Catalog, plan: Plan, taken: set[str], require: Require, dry_run: bool
) -> tuple[Catalog, Plan]:
    target = call.database.target()
    try:
        (statement,) = applicable(one.text, lambda: catalog, target)
    except (errors.CatalogError, errors.SqlError) as error:
        (statement,) = as_visible(call, catalog, lambda visible: applicable(one.text, lambda: visible, target), error)
    relation = statement.table if isinstance(statement, st.CreateTable) else statement.view
    one.kind = "table" if isinstance(relation, TableDef) else "view"
    one.name = relation.name
    if one.name.lower() in taken:
        raise errors.SqlError(f"{one.name!r} is described twice", hint="leave one of the documents out")
    require(call, statement)
    known = catalog.find(one.name)
    change = catalog_change.reconcile(catalog, statement)
    if change is None:
        one.action = "unchanged"
        if dry_run:
            one.forecast = {"zones": [], "state": [], "bytes": 0}
    else:
        one.action = "created" if known is None else "changed"
        if isinstance(change, catalog_change.ViewsCreated):
            nodes = plan_views(change.catalog, change.views, plan)
            if dry_run:
                one.forecast = forecast(nodes, plan, call.database.row_counts())
            names = {node.name for node in nodes}
            plan = Plan((*(view for view in plan.views if view.name not in names), *nodes))
        elif dry_run:
            one.forecast = {"zones": [], "state": [], "bytes": 0}
        catalog = change.catalog
    taken.add(one.name.lower())
    return catalog, plan


def _shown(one: _Document, request: str) -> dict[str, Any]:
    told: dict[str, Any] = {"kind": one.kind, "name": one.name, "action": one.action}
    told["problem"] = None if one.problem is None else problems.document(one.problem, request)
    if one.forecast is not None:
        told["forecast"] = one.forecast
    return told


def _refusal(call: Call, found: list[_Document], refused: list[_Document]) -> Answer:
    """The problem of the first, and with it all of them."""
    first = refused[0].problem
    assert first is not None
    document = problems.document(first, call.request)
    document["documents"] = [_shown(one, call.request) for one in found]
    return Answer(values.dumps(document), problems.MEDIA_TYPE, document["status"], tuple(problems.headers(first)))
