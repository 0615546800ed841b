"""Scalar expressions: syntax trees to bound, typed expressions.

One method per kind of node, found by a table. What is not in the table is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Protocol

from sqlglot import exp

from belvedere.errors import SqlError
from belvedere.sql import functions, refusals
from belvedere.sql.binder import intervals
from belvedere.sql.binder.datatypes import bind_type
from belvedere.sql.binder.scope import Scope
from belvedere.sql.coercion import Mismatch, boolean, common
from belvedere.sql.expr import Call, Expr, Literal
from belvedere.sql.parser import SqlText, offset_before, sql_text
from belvedere.types import BINARY, BOOLEAN, DOUBLE, NULL, STRING, Kind, decimal


class Aggregates(Protocol):
    """Where aggregate calls found inside an expression go."""

    def add(self, binder: ExpressionBinder, node: exp.Anonymous, condition: exp.Expr | None) -> Expr: ...


_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "add",
    exp.Sub: "sub",
    exp.Mul: "mul",
    exp.Div: "div",
    exp.Mod: "mod",
}
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "eq",
    exp.NEQ: "ne",
    exp.LT: "lt",
    exp.LTE: "le",
    exp.GT: "gt",
    exp.GTE: "ge",
    exp.NullSafeEQ: "null_safe_eq",
}
_FUNCTIONS_HINT = "the functions are listed in docs/reference/sql.md"
_SCALAR_HINT = "join with a subquery in FROM, or make it a view of its own"
_REFUSED: dict[type[exp.Expr], tuple[str, str]] = {
    exp.Subquery: ("scalar subqueries are not supported", _SCALAR_HINT),
    exp.Select: ("scalar subqueries are not supported", _SCALAR_HINT),
    exp.Exists: ("EXISTS is only supported as a condition of WHERE joined by AND", "rewrite with AND, or with UNION"),
    exp.Star: ("* is only allowed in a SELECT list and in count(*)", "name the columns"),
    exp.Tuple: ("row values are only supported left of IN (SELECT …)", "compare the columns one by one"),
    exp.Distinct: ("DISTINCT is only allowed in an aggregate function", "count(DISTINCT x), sum(DISTINCT x)"),
    exp.Alias: ("a name is only allowed in a SELECT list", "remove AS and the name"),
}
"""What the grammar knows, but not as a value: it means something elsewhere only."""


class ExpressionBinder:
    """Binds expressions over one scope. `place` names the clause, for messages; without `aggregates`, aggregate
    functions are refused there. `aliases`: names of the SELECT list, which HAVING sees before the columns below."""

    def __init__(
        self,
        source: SqlText,
        scope: Scope,
        place: str,
        aggregates: Aggregates | None = None,
        aliases: Mapping[str, Expr] | None = None,
    ):
        self.source, self.scope, self.place, self.aggregates = source, scope, place, aggregates
        self.aliases = aliases or {}

    def bind(self, node: exp.Expr) -> Expr:
        """The bound expression; every refusal carries the position of the innermost part it is about."""
        try:
            method = _METHODS.get(type(node))
            if method is not None:
                return method(self, node)
        except Mismatch as error:
            raise self.source.error(error.message, self._argument(node, error.argument), error.hint) from None
        raise self.refusal(node)

    def condition(self, node: exp.Expr, what: str) -> Expr:
        """A bound expression that must be boolean."""
        try:
            return boolean(self.bind(node), what)
        except Mismatch as error:
            raise self.source.error(error.message, node, error.hint) from None

    def refusal(self, node: exp.Expr) -> SqlError:
        """Why a node is outside the scope."""
        message, hint = _REFUSED.get(
            type(node), (f"{sql_text(node)!r} is not a value", "a value is a column, a constant, or made of them")
        )
        at: int | exp.Expr | None = node
        if isinstance(node, exp.Subquery | exp.Select):
            at = offset_before(self.source, node, ("(",))
        elif isinstance(node, exp.Exists):
            at = offset_before(self.source, node, ("EXISTS",))
        return self.source.unsupported(message, at, hint)

    def _argument(self, node: exp.Expr, argument: int | None) -> exp.Expr:
        if argument is None:
            return node
        parts: list[exp.Expr] = [p for p in (node.this, node.args.get("expression")) if isinstance(p, exp.Expr)]
        if isinstance(node, exp.Anonymous):
            parts = node.expressions
        elif isinstance(node, exp.In):
            parts = [node.this, *node.expressions]
        elif isinstance(node, exp.Case):
            parts = [*(branch.args["true"] for branch in node.args["ifs"]), node.args.get("default") or node]
        return parts[argument] if argument < len(parts) else node

    # Constants and names

    def _literal(self, node: exp.Expr) -> Expr:
        text = node.this
        if node.args["is_string"]:
            return Literal(text, STRING)
        if text.isdigit():
            value = functions.integer_literal(int(text))
            if value.type.kind is Kind.DECIMAL and value.type.precision > 38:
                raise self.source.error("the number has more than 38 digits", node)
            return value
        try:
            if "e" in text.lower():
                return Literal(float(text), DOUBLE)
            number = Decimal(text)
        except (ArithmeticError, ValueError):
            raise self.source.error(f"{text} is not a number", node) from None
        digits, exponent = number.as_tuple().digits, number.as_tuple().exponent
        scale = -int(exponent)
        precision = max(len(digits), scale)
        if precision > 38:
            raise self.source.error(
                "the number has more than 38 digits", node, "write it with an exponent for a double"
            )
        return Literal(number, decimal(precision, scale))

    def _null(self, node: exp.Expr) -> Expr:
        return Literal(None, NULL)

    def _boolean(self, node: exp.Expr) -> Expr:
        return Literal(bool(node.this), BOOLEAN)

    def _hex(self, node: exp.Expr) -> Expr:
        text = str(node.this)
        return Literal(bytes.fromhex(text.zfill(len(text) + len(text) % 2)), BINARY)

    def _raw(self, node: exp.Expr) -> Expr:
        return Literal(str(node.this), STRING)

    def _adjacent(self, node: exp.Expr) -> Expr:
        # 'a' 'b' is one string, as in the SQL standard.
        parts = [self.bind(e) for e in node.expressions]
        texts = [p.value for p in parts if isinstance(p, Literal) and isinstance(p.value, str)]
        return Literal("".join(texts), STRING) if len(texts) == len(parts) else functions_call("concat", parts)

    def _column(self, node: exp.Expr) -> Expr:
        assert isinstance(node, exp.Column)
        if isinstance(node.this, exp.Star):
            raise self.refusal(node.this)
        if not node.table and node.name.lower() in self.aliases:
            return self.aliases[node.name.lower()]
        return self.scope.resolve(self.source, node).expr

    def _paren(self, node: exp.Expr) -> Expr:
        return self.bind(node.this)

    # Operators

    def _binary(self, node: exp.Expr) -> Expr:
        operator = _ARITHMETIC[type(node)]
        left, right = node.this, node.expression
        if operator in ("add", "sub"):
            for interval, other in ((right, left), (left, right)):
                if isinstance(_bare(interval), exp.Interval) and (operator == "add" or interval is right):
                    shift = intervals.parse(self.source, _bare(interval))
                    return intervals.add(self.source, node, self.bind(other), shift, -1 if operator == "sub" else 1)
            a, b = self.bind(left), self.bind(right)
            dates = (a.type.kind is Kind.DATE, b.type.kind is Kind.DATE)
            if dates == (True, False) and b.type.kind in (Kind.INT, Kind.BIGINT):
                return functions_call("date_add" if operator == "add" else "date_sub", [a, b])
            if dates == (False, True) and operator == "add" and a.type.kind in (Kind.INT, Kind.BIGINT):
                return functions_call("date_add", [b, a])
            moments = (Kind.DATE, Kind.TIMESTAMP)
            if operator == "sub" and a.type.kind in moments and b.type.kind in moments:
                raise self.source.unsupported(
                    f"{a.type} - {b.type} is an interval, which is not supported", node, "datediff(a, b) gives days"
                )
            return functions.arithmetic(operator, a, b)
        return functions.arithmetic(operator, self.bind(left), self.bind(right))

    def _intdiv(self, node: exp.Expr) -> Expr:
        return functions.intdiv(self.bind(node.this), self.bind(node.expression))

    def _neg(self, node: exp.Expr) -> Expr:
        return functions.negate(self.bind(node.this))

    def _compare(self, node: exp.Expr) -> Expr:
        return functions.compare(_COMPARISONS[type(node)], self.bind(node.this), self.bind(node.expression))

    def _distinct_from(self, node: exp.Expr) -> Expr:
        same = functions.compare("null_safe_eq", self.bind(node.this), self.bind(node.expression))
        return Call("not", (same,), BOOLEAN)

    def _logic(self, node: exp.Expr) -> Expr:
        name = "and" if isinstance(node, exp.And) else "or"
        parts = [self.condition(p, f"an operand of {name.upper()}") for p in node.flatten(unnest=False)]
        return Call(name, tuple(parts), BOOLEAN)

    def _not(self, node: exp.Expr) -> Expr:
        inner = self.condition(node.this, "the operand of NOT")
        if isinstance(inner, Call) and inner.name in ("is_null", "is_not_null"):
            return Call("is_null" if inner.name == "is_not_null" else "is_not_null", inner.args, BOOLEAN)
        return Call("not", (inner,), BOOLEAN)

    def _is(self, node: exp.Expr) -> Expr:
        value, right = self.bind(node.this), node.expression
        if isinstance(right, exp.Null):
            return Call("is_null", (value,), BOOLEAN)
        if isinstance(right, exp.Boolean):
            value = boolean(value, "the operand of IS TRUE")
            return Call("is_true", (value if right.this else Call("not", (value,), BOOLEAN),), BOOLEAN)
        raise self.refusal(node)

    def _in(self, node: exp.Expr) -> Expr:
        if node.args.get("query") is not None:
            raise self.source.unsupported(
                "IN (SELECT …) is only supported as a condition of WHERE joined by AND",
                node,
                "rewrite with AND, or with UNION",
            )
        if isinstance(_bare(node.this), exp.Tuple):
            raise self.refusal(_bare(node.this))
        values = [self.bind(node.this), *(self.bind(e) for e in node.expressions)]
        _, bound = common(values, "IN")
        return Call("in", tuple(bound), BOOLEAN)

    def _between(self, node: exp.Expr) -> Expr:
        value = self.bind(node.this)
        low = functions.compare("ge", value, self.bind(node.args["low"]))
        high = functions.compare("le", value, self.bind(node.args["high"]))
        return Call("and", (low, high), BOOLEAN)

    def _like(self, node: exp.Expr) -> Expr:
        escape = "\\"
        like = node
        if isinstance(node, exp.Escape):
            like = node.this
            escape = node.expression.name
            if len(escape) != 1:
                raise self.source.error("ESCAPE needs one character", node.expression)
        value = functions.implicit(self.bind(like.this), STRING, "like", 0)
        pattern = functions.implicit(self.bind(like.expression), STRING, "like", 1)
        call = Call("like", (value, pattern, Literal(escape, STRING)), BOOLEAN)
        return Call("not", (call,), BOOLEAN) if like.args.get("negate") else call

    # Special forms

    def _case(self, node: exp.Expr) -> Expr:
        subject = node.args.get("this")
        tests: list[Expr] = []
        results: list[Expr] = []
        for branch in node.args["ifs"]:
            if subject is None:
                tests.append(self.condition(branch.this, "WHEN"))
            else:
                tests.append(functions.compare("eq", self.bind(subject), self.bind(branch.this)))
            results.append(self.bind(branch.args["true"]))
        default = node.args.get("default")
        results.append(self.bind(default) if default is not None else Literal(None, NULL))
        type_, bound = common(results, "CASE")
        args = [part for pair in zip(tests, bound[:-1], strict=True) for part in pair]
        return Call("case", (*args, bound[-1]), type_)

    def _if(self, node: exp.Expr) -> Expr:
        default = node.args.get("false")
        no = self.bind(default) if default is not None else Literal(None, NULL)
        return functions.condition(self.bind(node.this), self.bind(node.args["true"]), no)

    def _cast(self, node: exp.Expr) -> Expr:
        target = bind_type(self.source, node.args["to"], node)
        value = self.bind(node.this)
        # sqlglot reads Spark's plain CAST as TryCast as well; only TRY_CAST is marked safe.
        name = "try_cast" if node.args.get("safe") else "cast"
        bound = functions.explicit_cast(value, target, name)
        typed_literal = type(node) is exp.Cast and isinstance(node.this, exp.Literal) and node.this.is_string
        if typed_literal and not isinstance(bound, Literal):
            raise self.source.error(f"{target} {node.this.name!r} is not a {target}", node.this)
        return bound

    def _extract(self, node: exp.Expr) -> Expr:
        return functions.extract(node.this.name, self.bind(node.expression))

    def _trim(self, node: exp.Expr) -> Expr:
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "trim")
        chars = node.args.get("expression")
        args = [self.bind(node.this)] if chars is None else [self.bind(chars), self.bind(node.this)]
        return functions_call(name, args)

    def _substring(self, node: exp.Expr) -> Expr:
        parts = [node.this, node.args.get("start"), node.args.get("length")]
        return functions_call("substring", [self.bind(p) for p in parts if p is not None])

    def _position(self, node: exp.Expr) -> Expr:
        return functions_call("instr", [self.bind(node.this), self.bind(node.args["substr"])])

    def _concat(self, node: exp.Expr) -> Expr:
        parts = [self.bind(node.this), self.bind(node.expression)]
        whole = functions_call("concat", parts)
        args: list[Expr] = []
        for part in parts:
            # b || c || s: the bytes are joined before they become a string, so only equal types are one call.
            flat = isinstance(part, Call) and part.name == "concat" and part.type == whole.type
            args.extend(part.args if flat and isinstance(part, Call) else [part])
        return functions_call("concat", args)

    def _interval(self, node: exp.Expr) -> Expr:
        raise self.source.unsupported(
            "an interval can only be added to or subtracted from a date or timestamp", node, "d + interval '1' day"
        )

    def _filter(self, node: exp.Expr) -> Expr:
        inner = node.this
        if not isinstance(inner, exp.Anonymous) or functions.find(inner.name) is not None:
            raise self.source.error("FILTER needs an aggregate function before it", node, refusals.AGGREGATES)
        if inner.name.lower() not in functions.AGGREGATES:
            return self._call(inner)  # which says why there is no such aggregate
        return self._aggregate(inner, node.expression.this)

    def _aggregate(self, node: exp.Anonymous, condition: exp.Expr | None) -> Expr:
        if self.aggregates is None:
            raise self.source.error(
                f"aggregate function {node.name.lower()} is not allowed in {self.place}",
                node,
                "use HAVING" if self.place == "WHERE" else "aggregate in a subquery first",
            )
        return self.aggregates.add(self, node, condition)

    def _call(self, node: exp.Expr) -> Expr:
        assert isinstance(node, exp.Anonymous)
        name = node.name.lower()
        if name in functions.AGGREGATES:
            return self._aggregate(node, None)
        if name in functions.NONDETERMINISTIC:
            raise refusals.nondeterministic(self.source, name, node)
        if name in functions.OTHER_AGGREGATES:
            raise self.source.unsupported(f"aggregate function {name} is not supported", node, refusals.AGGREGATES)
        if name in functions.WINDOW_ONLY:
            raise self.source.unsupported(f"window function {name} is not supported", node, "aggregate with GROUP BY")
        function = functions.find(name)
        if function is None:
            close = functions.suggestions(name)
            hint = functions.INSTEAD.get(name) or (f"did you mean {' or '.join(close)}?" if close else _FUNCTIONS_HINT)
            raise self.source.unsupported(f"no function {name}", node, hint)
        check_arity(name, function, len(node.expressions))
        return function.rule([self.bind(e) for e in node.expressions])


def arity(least: int, most: int | None) -> str:
    """How many arguments, in words."""
    if most is None:
        return f"at least {least} arguments"
    if least == most:
        return f"{least} argument" + ("" if least == 1 else "s")
    return f"{least} to {most} arguments"


def check_arity(name: str, function: functions.Function, count: int) -> None:
    """Refuse a wrong number of arguments."""
    if count < function.least or (function.most is not None and count > function.most):
        raise Mismatch(f"function {name} takes {arity(function.least, function.most)}, found {count}")


def functions_call(name: str, args: Sequence[Expr]) -> Expr:
    """A function of the table by its SQL name."""
    function = functions.find(name)
    assert function is not None, name
    check_arity(name, function, len(args))
    return function.rule(args)


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


_METHODS: dict[type[exp.Expr], Callable[[ExpressionBinder, exp.Expr], Expr]] = {
    exp.Literal: ExpressionBinder._literal,
    exp.Null: ExpressionBinder._null,
    exp.Boolean: ExpressionBinder._boolean,
    exp.HexString: ExpressionBinder._hex,
    exp.RawString: ExpressionBinder._raw,
    exp.Concat: ExpressionBinder._adjacent,
    exp.Column: ExpressionBinder._column,
    exp.Paren: ExpressionBinder._paren,
    **dict.fromkeys(_ARITHMETIC, ExpressionBinder._binary),
    exp.IntDiv: ExpressionBinder._intdiv,
    exp.Neg: ExpressionBinder._neg,
    **dict.fromkeys(_COMPARISONS, ExpressionBinder._compare),
    exp.NullSafeNEQ: ExpressionBinder._distinct_from,
    exp.And: ExpressionBinder._logic,
    exp.Or: ExpressionBinder._logic,
    exp.Not: ExpressionBinder._not,
    exp.Is: ExpressionBinder._is,
    exp.In: ExpressionBinder._in,
    exp.Between: ExpressionBinder._between,
    exp.Like: ExpressionBinder._like,
    exp.Escape: ExpressionBinder._like,
    exp.Case: ExpressionBinder._case,
    exp.If: ExpressionBinder._if,
    exp.Cast: ExpressionBinder._cast,
    exp.TryCast: ExpressionBinder._cast,
    exp.Extract: ExpressionBinder._extract,
    exp.Trim: ExpressionBinder._trim,
    exp.Substring: ExpressionBinder._substring,
    exp.StrPosition: ExpressionBinder._position,
    exp.DPipe: ExpressionBinder._concat,
    exp.Interval: ExpressionBinder._interval,
    exp.Filter: ExpressionBinder._filter,
    exp.Anonymous: ExpressionBinder._call,
}
