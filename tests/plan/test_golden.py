"""Golden plans: SQL in, explain text out. `UPDATE_GOLDEN=1 pytest tests/plan/test_golden.py` writes them anew; read the
diff.

A file holds one query, or several `-- view name` ones separated by `;` that are planned together (or, with
`-- one by one`, each with what was planned before). `-- key: a, b` sets the key that a user would choose.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from belvedere.plan import nodes as n
from belvedere.plan.explain import explain
from belvedere.plan.planner import plan_views
from belvedere.sql.catalog import Catalog, ViewDef
from belvedere.sql.views import bind_query

from .tpch import catalog as tpch

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.txt"))
SEPARATOR = "\n----\n"


def definitions(text: str) -> tuple[list[ViewDef], Catalog]:
    """The views of a golden file, and a catalog that knows them."""
    catalog, found = tpch(), []
    for part in text.split(";\n"):
        name = re.search(r"^-- view (\w+)", part, re.MULTILINE)
        key = re.search(r"^-- key: (.*)$", part, re.MULTILINE)
        sql = "\n".join(line for line in part.splitlines() if not line.startswith("--"))
        view = ViewDef(
            name.group(1) if name else "v",
            sql,
            bind_query(sql, catalog),
            tuple(k.strip() for k in key.group(1).split(",")) if key else None,
        )
        catalog = catalog.with_view(view)
        found.append(view)
    return found, catalog


def planned(text: str) -> n.Plan:
    views, catalog = definitions(text)
    if "-- one by one" not in text:
        return n.Plan(plan_views(catalog, views, n.Plan(())))
    plan = n.Plan(())
    for view in views:
        plan = n.Plan((*plan.views, *plan_views(catalog, [view], plan)))
    return plan


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_plan_is_as_recorded(path: Path) -> None:
    text, _, expected = path.read_text().partition(SEPARATOR)
    shown = explain(planned(text))
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text + SEPARATOR + shown)
        return
    assert shown == expected
