"""Definitions: statements, manifests, drops, plans; who may do what with the names that they have."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from belvedere import errors
from belvedere.gateway import formats, params, values
from belvedere.gateway.api import JSON, SQL, SVG, TEXT, YAML, Access, Answer, Call, Endpoint, Right, accepted, read_only
from belvedere.gateway.applying import apply_manifests
from belvedere.gateway.describing import type_name
from belvedere.gateway.visibility import as_visible
from belvedere.sql import statements as st

_QUERIES = (st.Select, st.Show, st.Describe, st.Explain)


def bound(call: Call, sql: str) -> st.Statement:
    """The statement, bound to the newest catalog."""
    from belvedere.sql import parse_statement

    db = call.database.db
    try:
        return parse_statement(sql, db.catalog)
    except (errors.CatalogError, errors.SqlError):
        call.database.refresh()  # a name may have come a moment ago
    try:
        return parse_statement(sql, db.catalog)
    except (errors.CatalogError, errors.SqlError) as error:
        return as_visible(
            call, db.catalog, lambda visible: parse_statement(sql, visible), call.database.why_unknown(sql, error)
        )


def require(call: Call, statement: st.Statement) -> None:
    """Raises AccessDenied, unless the caller may do all that the statement names."""
    match statement:
        case st.CreateTable(table=table):
            call.allowed(Right.ADMIN, table.name)
        case st.CreateView(view=view):
            call.allowed(Right.ADMIN, view.name)
            _reads(call, view.reads)
        case st.AddColumns(table=name) | st.Drop(name=name):
            call.allowed(Right.ADMIN, name)
        case st.Insert(table=name) | st.Delete(table=name):
            call.allowed(Right.WRITE, name)
        case st.Select(view=view) | st.Explain(view=view):
            _reads(call, view.reads)
        case st.Describe(name=name):
            call.allowed(Right.READ, name)
        case st.Show(name=shown):
            call.allowed(Right.READ, "*" if shown is None else shown)


def _reads(call: Call, names: Any) -> None:
    for name in names:
        call.allowed(Right.READ, name)


def execute(call: Call) -> Answer:
    """One statement."""
    sql, wait = _text(call), call.get("wait", True)
    if call.content_type == JSON:
        asked = values.loads(call.body, "the body")
        if not isinstance(asked, dict) or not isinstance(asked.get("sql"), str):
            raise errors.BadRequest('the body is {"sql": "…"}')
        if unknown := sorted(set(asked) - {"sql", "wait"}):
            raise errors.BadRequest(f"the body has no field {unknown[0][:60]!r}; there is sql, wait")
        if not isinstance(asked.get("wait", True), bool) or "wait" in call.params:
            raise errors.BadRequest("wait is true or false; with a JSON body it is a field of it")
        sql, wait = asked["sql"], asked.get("wait", True)
    statement = bound(call, sql)
    require(call, statement)
    if call.database.read_only and not isinstance(statement, _QUERIES):
        raise read_only()
    if call.after is not None:
        call.database.db.wait(call.database.token(call.after), call.wait)
    if not isinstance(statement, _QUERIES):
        call.attempted = {"action": type(statement).__name__, "relation": _name(statement)}
    result = call.database.db.execute(sql, wait=wait)
    if isinstance(result, pa.Table):
        headers = (("belvedere-token", f"e{call.database.newest()}"),)
        media = accepted(call.accept, formats.ROWS)
        around = {"columns": [{"name": f.name, "type": type_name(f.type)} for f in result.schema]}
        return formats.rows_answer(result, media, around, headers)
    if isinstance(result, str) or result is None:
        return Answer(values.dumps({"text": result or ""}))
    told = {**(call.attempted or {}), "token": str(result)}
    if not isinstance(statement, st.Insert | st.Delete):
        told["sql"] = sql[:500]  # of a write it would be values of rows
    return Answer(values.dumps({"token": str(result)}), headers=(("belvedere-token", str(result)),), audit=told)


def _text(call: Call) -> str:
    try:
        return call.body.decode()
    except UnicodeDecodeError as error:
        raise errors.BadRequest(f"the body is no UTF-8: {error.reason} at byte {error.start}") from None


def _name(statement: st.Statement) -> str:
    match statement:
        case st.CreateTable(table=table):
            return table.name
        case st.CreateView(view=view):
            return view.name
        case st.AddColumns(table=name) | st.Insert(table=name) | st.Delete(table=name) | st.Drop(name=name):
            return name
    return ""


def apply(call: Call) -> Answer:
    """Manifests."""
    return apply_manifests(
        call,
        _text(call),
        wait=call.get("wait", True),
        dry_run=call.get("dry_run", False),
        partial=call.get("partial", False),
        require=require,
    )


def drop(call: Call) -> Answer:
    catalog = call.database.db.catalog
    name = call.relation
    if catalog.find(name) is None:
        call.database.refresh()
        catalog = call.database.db.catalog
    known = catalog.find(name)
    kind = "MATERIALIZED VIEW"
    if known is not None:
        kind, name = ("TABLE", known.name) if known.name in catalog.tables else (kind, known.name)
    elif call.get("if_exists") and not _failed(call, name):
        token = f"e{call.database.newest()}"
        return Answer(values.dumps({"token": token}), headers=(("belvedere-token", token),))
    quoted = name.replace("`", "``")
    call.attempted = {"action": "Drop"}
    token = str(call.database.db.execute(f"DROP {kind} `{quoted}`"))
    told = {**call.attempted, "token": token}
    return Answer(values.dumps({"token": token}), headers=(("belvedere-token", token),), audit=told)


def _failed(call: Call, name: str) -> bool:
    """A view that cannot be computed has no definition, and can be dropped."""
    try:
        call.database.db.key_columns(name)
    except errors.ViewFailed:
        return True
    except errors.BelvedereError:
        return False
    return True


_PLANS = {TEXT: "text", JSON: "json", SVG: "svg"}


def plan(call: Call) -> Answer:
    quoted = call.database.relation(call.relation).name.replace("`", "``")
    return _explained(call, f"`{quoted}`")


def explain(call: Call) -> Answer:
    sql = _text(call).strip()
    statement = bound(call, f"EXPLAIN {sql}")
    require(call, statement)
    return _explained(call, sql)


def _explained(call: Call, what: str) -> Answer:
    media = accepted(call.accept, tuple(_PLANS))
    text = call.database.db.execute(f"EXPLAIN FORMAT {_PLANS[media]} {what}")
    return Answer(str(text).encode(), media)


_R = "/v1/relations/{relation}"
ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/sql",
        "Carry out one statement",
        Access.KNOWN,
        execute,
        (params.WAIT,),
        consumes=(SQL, JSON),
        produces=formats.ROWS,
        body="Statement",
        answer="StatementResult",
        patient=True,
        reads_after=True,
    ),
    Endpoint(
        "POST",
        "/v1/apply",
        "Apply manifests",
        Access.KNOWN,
        apply,
        (params.WAIT, params.DRY_RUN, params.PARTIAL),
        consumes=(YAML,),
        body="Manifests",
        answer="Applied",
        changes=True,
        patient=True,
    ),
    Endpoint(
        "DELETE", _R, "Drop a table or view", Access.ADMIN, drop, (params.IF_EXISTS,), answer="Token", patient=True
    ),
    Endpoint("GET", f"{_R}/plan", "How a view is maintained", Access.READ, plan, produces=tuple(_PLANS), answer="Plan"),
    Endpoint(
        "POST",
        "/v1/explain",
        "How a query would be maintained",
        Access.KNOWN,
        explain,
        consumes=(SQL,),
        produces=tuple(_PLANS),
        body="Query",
        answer="Plan",
    ),
)
