"""Looking after a database: status, lag, members of a pool, verification with progress."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import asdict
from typing import Any

from belvedere import errors
from belvedere.gateway import values
from belvedere.gateway.api import JSON, NDJSON, Access, Answer, Call, Endpoint, Right, accepted
from belvedere.gateway.reads import key_of
from belvedere.model.reloads import Reloading
from belvedere.plan.zones import zones
from belvedere.sql.catalog import Catalog, TableDef, ViewDef

PROGRESS_SECONDS = 5.0
FIGURES = ("epoch", "age_ms", "lag_ms", "backlog_rows")


def lag(call: Call) -> Answer:
    told = call.database.status()
    return Answer(values.dumps({"database": call.database.kind, **{name: told.get(name) for name in FIGURES}}))


def status(call: Call) -> Answer:
    told = call.database.counted(call.database.status())
    catalog = call.database.db.catalog
    views = told.get("views", {})
    building = [name for build in told.get("builds", ()) for name in build["views"]]
    names = list(dict.fromkeys([*catalog.views, *views, *building]))
    places = _zones(call)
    body = {
        "database": call.database.kind,
        **{name: told.get(name) for name in FIGURES},
        "problems": list(told.get("problems", ())),
        "tables": {name: _table(told, catalog.tables[name]) for name in catalog.tables},
        "views": {name: _view(call, told, catalog, places, name) for name in names},
        "building": told.get("builds", []),
        "detail": told,
    }
    return Answer(values.dumps(_plain(body)))


def relation_status(call: Call) -> Answer:
    told, catalog = call.database.counted(call.database.status()), call.database.db.catalog
    found = catalog.find(call.relation)
    if isinstance(found, TableDef):
        return Answer(values.dumps(_plain(_table(told, found))))
    name = call.relation if found is None else found.name
    name = next((known for known in told.get("views", {}) if known.lower() == name.lower()), name)
    if found is None and name not in told.get("views", {}):
        catalog.relation(name)  # raises
    return Answer(values.dumps(_plain(_view(call, told, catalog, _zones(call), name))))


def _table(told: Mapping[str, Any], table: TableDef) -> dict[str, Any]:
    figures = told.get("tables", {}).get(table.name, {})
    return {"kind": "table", "rows": figures.get("rows"), "bytes": figures.get("bytes")}


def _zones(call: Call) -> dict[str, list[dict[str, Any]]]:
    """Zones by view."""
    from belvedere.plan.nodes import Plan

    plan, _ = call.database.db._plan()
    return {
        view.name: [{"key": list(zone.key), "nodes": len(zone.nodes)} for zone in zones(Plan((view,)))]
        for view in plan.views
    }


def _view(
    call: Call, told: Mapping[str, Any], catalog: Catalog, places: Mapping[str, Any], name: str
) -> dict[str, Any]:
    figures = told.get("views", {}).get(name, {})
    definition = catalog.views.get(name)
    failed = figures.get("state") == "Failed"
    building = any(name in build["views"] for build in told.get("builds", ()))
    reads = sorted(definition.reads) if isinstance(definition, ViewDef) else []
    quarantined = figures.get("quarantined")
    return {
        "kind": "view",
        "state": "Failed" if failed else "Building" if building and not figures else "Ready",
        "reason": figures.get("reason", ""),
        "since": figures.get("since"),
        "version": figures.get("version", None if definition is None else definition.version),
        "epoch": figures.get("since") if failed else told.get("epoch"),
        "lag_ms": None if failed else told.get("lag_ms"),
        "rows": figures.get("rows"),
        "bytes": figures.get("bytes"),
        "quarantined": quarantined,
        "complete": figures.get("complete"),
        "zones": places.get(name, []),
        "reads": reads,
        "dependants": sorted(v.name for v in catalog.views.values() if name.lower() in {r.lower() for r in v.reads}),
        "failed_build": figures.get("failed_build", ""),
        "verified": call.verified.get(name.lower()),
    }


def _plain(value: Any) -> Any:
    """Keys as texts, and numbers that JSON cannot have as text."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    if isinstance(value, float) and value != value:
        return "NaN"
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def pool(call: Call) -> Answer:
    if call.database.kind != "pool":
        raise errors.NoSuchResource("an embedded database is one process: it has no members")
    told = call.database.status()
    members = [_member(one) for one in told.get("members", ())]
    servers = [one for one in members if one["role"] == "viewserver"]
    busy = [one["busy"] for one in servers if one["busy"] is not None]
    body = {
        "pool": told.get("pool"),
        "leader": told.get("leader"),
        "generation": told.get("generation"),
        "engine": told.get("engine"),
        "stalled": told.get("stalled", ""),
        "waiting_for": told.get("waiting_for", ""),
        "members": members,
        "view_servers": len(servers),
        "queue_rows": sum(one["queue_rows"] or 0 for one in servers),
        "busy": sum(busy) / len(busy) if busy else None,
        "lag_ms": told.get("lag_ms"),
        "backlog_rows": told.get("backlog_rows"),
    }
    return Answer(values.dumps(body))


def _member(told: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": told.get("id"),
        "role": told.get("role"),
        "address": told.get("address"),
        "share": told.get("share"),
        "queue_rows": told.get("queue_rows"),
        "busy": told.get("busy"),
        "state": told.get("state", ""),
        "leaving": bool(told.get("leaving")),
        "trouble": told.get("trouble", "") or told.get("refused", ""),
        "detail": _plain(told),
    }


# ---------------------------------------------------------------------- verification


def verify(call: Call) -> Answer:
    asked = values.loads(call.body or b"{}", "the body")
    if not isinstance(asked, dict) or set(asked) - {"views"}:
        raise errors.BadRequest('the body is {"views": ["…"]}, or {} for all views')
    wanted = asked.get("views")
    catalog = call.database.db.catalog
    if wanted is None:
        names = list(catalog.views)
    elif isinstance(wanted, list) and wanted and all(isinstance(name, str) for name in wanted):
        names = wanted
    else:
        raise errors.BadRequest("views is an array of names, or absent for all")
    for name in names if wanted is not None else ["*"]:
        call.allowed(Right.ADMIN, name)  # before it is told which of them there are
    names = [catalog.relation(name).name for name in names]
    if accepted(call.accept, (JSON, NDJSON)) == NDJSON:
        return Answer(media_type=NDJSON, parts=lambda: _verifying(call, names))
    reports = [_verified(call, name) for name in names if not call.gone.is_set()]
    return Answer(values.dumps({"ok": all(report["ok"] for report in reports), "reports": reports}))


def _verified(call: Call, name: str) -> dict[str, Any]:
    report = call.database.db.verify(name).to_dict()
    for side in ("missing", "extra"):
        report[side] = [values.row(row) for row in report[side]]
    report["different"] = [{side: values.row(row) for side, row in pair.items()} for pair in report["different"]]
    call.verified[name.lower()] = {
        **{field: report[field] for field in ("ok", "complete", "epoch", "problem")},
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    return dict(report)


def reload(call: Call) -> Answer:
    """Asked again with the same request, it says how far it is."""
    db = call.database.db
    if not isinstance(db, Reloading):
        raise errors.CatalogError("base tables of an embedded database are its own, and nothing passes it by")
    asked = values.loads(call.body or b"{}", "the body")
    if not isinstance(asked, dict) or set(asked) - _RELOAD or not all(isinstance(one, str) for one in asked.values()):
        raise errors.BadRequest('the body is {"request": "…", "start": "…", "stop": "…"}, or {} for the whole table')
    table = call.database.db.catalog.relation(call.relation)
    if not isinstance(table, TableDef):
        raise errors.CatalogError(f"{table.name!r} is a view; base tables of HBase can be read again")
    call.attempted = {"action": "Reload", "request": asked.get("request", "")}
    return Answer(values.dumps(asdict(db.reload(table.name, wait=False, **asked))), audit=call.attempted)


_RELOAD = {"request", "start", "stop"}


def repair(call: Call) -> Answer:
    """It answers when it is done, or found nothing to do."""
    asked = values.loads(call.body or b"{}", "the body")
    if not isinstance(asked, dict) or set(asked) - _REPAIR.keys():
        raise errors.BadRequest(f"the body is an object with some of {', '.join(_REPAIR)}, or {{}} for the whole view")
    for name, kind in _REPAIR.items():
        if name in asked and not isinstance(asked[name], kind):
            raise errors.BadRequest(f"{name} is {'true or false' if kind is bool else 'an array'}")
    mend = getattr(call.database.db, "repair", None)
    if mend is None:
        raise errors.CatalogError("nothing can be repaired here: the database is open for reading only")
    view = call.database.db.catalog.relation(call.relation).name
    asked = {name: _keys(call, view, name, value) for name, value in asked.items()}
    if asked.get("dry_run"):
        return Answer(values.dumps(mend(view, **asked).to_dict()))
    call.attempted = {"action": "Repair", "everything": asked.get("everything") or ""}
    report = mend(view, **asked)
    told = {**call.attempted, "mended": report.mended, "remaining": report.remaining or ""}
    return Answer(values.dumps(report.to_dict()), audit=told)


_REPAIR: Mapping[str, type] = {
    "keys": list, "prefix": list, "start": list, "stop": list, "everything": bool, "dry_run": bool,
}  # fmt: skip


def _keys(call: Call, view: str, name: str, value: Any) -> Any:
    """Keys are arrays of the values of their columns, in the forms that JSON has for them."""
    if not isinstance(value, list):
        return value
    if name != "keys":
        return key_of(call, view, value)
    if not all(isinstance(key, list) for key in value):
        raise errors.BadRequest("keys is an array of keys, each an array of the values of its columns")
    return [key_of(call, view, key) for key in value]


async def _verifying(call: Call, names: list[str]) -> AsyncGenerator[bytes, None]:
    began, ok = time.monotonic(), True
    for done, name in enumerate(names):
        if call.gone.is_set():
            return
        work = asyncio.ensure_future(call.in_thread(functools.partial(_verified, call, name), waits=True))
        while True:
            told = {"event": "progress", "view": name, "done": done, "total": len(names)}
            yield values.dumps({**told, "seconds": round(time.monotonic() - began, 1)}) + b"\n"
            finished, _ = await asyncio.wait([work], timeout=PROGRESS_SECONDS)
            if finished:
                break
        try:
            report = work.result()
        except errors.BelvedereError as error:
            from belvedere.gateway import problems

            ok = False
            yield values.dumps({"event": "problem", "view": name, "problem": problems.document(error)}) + b"\n"
            continue
        ok = ok and report["ok"]
        yield values.dumps({"event": "report", "report": report}) + b"\n"
    yield values.dumps({"event": "done", "ok": ok, "reports": len(names)}) + b"\n"


_R = "/v1/relations/{relation}"
ENDPOINTS = (
    Endpoint("GET", "/v1/status", "Figures of everything", Access.ALL, status, answer="Status"),
    Endpoint("GET", "/v1/lag", "How far views are behind", Access.ALL, lag, answer="Lag"),
    Endpoint(
        "GET", f"{_R}/status", "Figures of a table or view", Access.READ, relation_status, answer="RelationStatus"
    ),
    Endpoint("GET", "/v1/pool", "Members of a pool", Access.ALL, pool, answer="Pool"),
    Endpoint(
        "POST",
        f"{_R}/reload",
        "Read a table of HBase again, and correct what differs",
        Access.ADMIN,
        reload,
        consumes=(JSON,),
        body="Reload",
        answer="Reloaded",
        optional_body=True,
        changes=True,
    ),
    Endpoint(
        "POST",
        f"{_R}/repair",
        "Mend what is wrong with a view, the state behind it and what reads it",
        Access.ADMIN,
        repair,
        consumes=(JSON,),
        body="Repair",
        answer="Repaired",
        patient=True,
        optional_body=True,
        changes=True,
    ),
    Endpoint(
        "POST",
        "/v1/verify",
        "Recompute views and compare",
        Access.KNOWN,
        verify,
        consumes=(JSON,),
        produces=(JSON, NDJSON),
        body="Verification",
        answer="Verified",
        patient=True,
        optional_body=True,
    ),
)
