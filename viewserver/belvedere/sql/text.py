"""Bound expressions and queries written for people: explain, quarantine reasons, SHOW CREATE."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

from belvedere.sql.catalog import TableDef, Ties, ViewDef
from belvedere.sql.expr import Call, ColumnRef, Expr, Literal
from belvedere.sql.registry import SCALARS

_BINARY = {
    **dict.fromkeys(("mul", "div", "mod", "intdiv"), 7),
    **dict.fromkeys(("add", "sub"), 6),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "null_safe_eq"), 4),
}
"""How strongly operators bind: or 1, and 2, not 3, comparisons 4, sums 6, products 7."""


def expr_text(expr: Expr) -> str:
    """An expression in SQL, with parentheses only where they are needed."""
    return _text(expr, 0)


def literal_text(value: object) -> str:
    """A constant in SQL."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, datetime):
        shown = value.strftime("%Y-%m-%d %H:%M:%S") + (f".{value.microsecond:06}" if value.microsecond else "")
        return f"timestamp '{shown}'"
    if isinstance(value, date):
        return f"date '{value.isoformat()}'"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float):
        return f"{value!r}D" if value == value and abs(value) != float("inf") else f"double('{value}')"
    return str(value)


def _text(expr: Expr, outer: int) -> str:
    if isinstance(expr, ColumnRef):
        return expr.name or f"#{expr.index}"
    if isinstance(expr, Literal):
        return literal_text(expr.value)
    text, strength = _call(expr)
    return f"({text})" if strength < outer else text


def _call(call: Call) -> tuple[str, int]:
    name, args = call.name, call.args
    if name in _BINARY:
        sign, strength = SCALARS[name].infix, _BINARY[name]
        return f"{_text(args[0], strength)} {sign} {_text(args[1], strength + 1)}", strength
    if name in ("and", "or"):
        # An AND within an OR needs no parentheses, and is read more easily with them.
        return f" {name} ".join(_text(a, 3) for a in args), 2 if name == "and" else 1
    if name == "not":
        return f"not {_text(args[0], 4)}", 3
    if name in ("is_null", "is_not_null", "is_true"):
        return f"{_text(args[0], 5)} {name.replace('_', ' ')}", 4
    if name == "neg":
        return f"-{_text(args[0], 8)}", 8
    if name == "in":
        return f"{_text(args[0], 5)} in ({', '.join(expr_text(a) for a in args[1:])})", 4
    if name == "like":
        escape = args[2] if len(args) > 2 else None
        shown = isinstance(escape, Literal) and escape.value != "\\"
        tail = f" escape {expr_text(escape)}" if shown and escape is not None else ""
        return f"{_text(args[0], 5)} like {_text(args[1], 5)}{tail}", 4
    if name in ("cast", "try_cast"):
        return f"{name}({expr_text(args[0])} as {call.type})", 9
    if name == "case":
        whens = " ".join(
            f"when {expr_text(w)} then {expr_text(t)}" for w, t in zip(args[0:-1:2], args[1:-1:2], strict=True)
        )
        default = args[-1]
        tail = "" if isinstance(default, Literal) and default.value is None else f" else {expr_text(default)}"
        return f"case {whens}{tail} end", 9
    return f"{name}({', '.join(expr_text(a) for a in args)})", 9


def quoted(name: str) -> str:
    """A name, in backquotes only if it needs them."""
    return name if name.isidentifier() and name.isascii() else "`" + name.replace("`", "``") + "`"


def create_text(definition: TableDef | ViewDef) -> str:
    """The statement that would create a table or view."""
    if isinstance(definition, TableDef):
        lines = [
            f"  {quoted(c.name)} {c.type}" + (" NOT NULL" if not c.nullable and c.name not in definition.key else "")
            for c in definition.columns
        ]
        lines.append(f"  PRIMARY KEY ({', '.join(map(quoted, definition.key))})")
        options = "" if definition.ties is Ties.LINEAGE else f" TBLPROPERTIES ('ties' = '{definition.ties.value}')"
        return f"CREATE TABLE {quoted(definition.name)} (\n" + ",\n".join(lines) + "\n)" + options
    options = ""
    if definition.key is not None:
        options += f" KEY ({', '.join(map(quoted, definition.key))})"
    if definition.retention_ms is not None:
        options += f" RETENTION '{definition.retention_ms}ms'"
    return f"CREATE MATERIALIZED VIEW {quoted(definition.name)}{options} AS\n{definition.sql}"
