"""Why a part of a statement is outside the scope, and what would work instead.

One table for kinds of nodes, one for parts of nodes. What stands in neither is refused as well, by the word of the text
where reading stopped: never by a name that only sqlglot knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from belvedere.errors import SqlError
from belvedere.sql import functions
from belvedere.sql.parser import Dialect, SqlText, first_offset, offset_before, word
from belvedere.sql.types_by_name import KNOWN, is_type

AGGREGATES = "aggregates: " + ", ".join(sorted(functions.AGGREGATES))
_SORT = "a view is a set of rows: sort when you read it"
_ARRAYS = "use one column for each value"
_FILTER = "sum(x) FILTER (WHERE key = …), one for each column"
_GROUPING = "GROUPING SETS, ROLLUP and CUBE are not supported"
_GROUPINGS = "one view for each grouping, or UNION ALL of them"
_PLAIN_NAME = "an alias is a plain name: t AS x"
_NO_HINTS = "remove the hint: every plan is chosen by the rows and the key"
_JSON = "write the fields you need into columns of their own"


@dataclass(frozen=True, slots=True)
class Refusal:
    """`{text}` in the message is the node as written. `words`: what it begins with in the text, since keywords leave no
    mark in the tree."""

    message: str
    hint: str
    words: tuple[str, ...] = ()
    whole: bool = False  # the node that has the part is what it is about

    def error(self, source: SqlText, part: Any, near: exp.Expr) -> SqlError:
        part = near if self.whole else part
        message = self.message.format(text=_written(source, near)) if "{" in self.message else self.message
        return source.unsupported(message, _offset(source, self.words, part, near), self.hint)


# What several kinds of nodes have in common

_WINDOW = Refusal("window functions are not supported", "aggregate with GROUP BY, and join the result back")
_PARAMETER = Refusal("parameters are not supported", "write the constant itself", ("?", ":", "$", "@"))
_REGEX = Refusal("regular expressions are not supported", "use LIKE, startswith, endswith or contains")
_NESTED = Refusal("arrays, maps and structs are not supported", _ARRAYS)
_BITS = Refusal("operators on bits are not supported", "compute them before writing, into a column of their own")
_JSON_PATH = Refusal("JSON and variant paths are not supported", _JSON)
_AGGREGATE_ORDER = Refusal(
    "ORDER BY and LIMIT inside a function are not supported", "the aggregates here do not depend on the order of rows"
)
_NULLS = Refusal(
    "IGNORE NULLS and RESPECT NULLS are not supported",
    "aggregates skip NULLs; count(*) counts every row",
    ("IGNORE", "RESPECT"),
)
_ZONE = Refusal("time zones are not supported", "timestamps are UTC; add the offset as an interval", ("AT",))
_CONSTANT = Refusal("this form of constant is not supported", "write 'text', X'bytes' or a number")

KINDS: dict[type[exp.Expr], Refusal] = {
    exp.Window: _WINDOW,
    exp.WithinGroup: Refusal("WITHIN GROUP is not supported", AGGREGATES, ("WITHIN",)),
    exp.IgnoreNulls: _NULLS,
    exp.RespectNulls: _NULLS,
    exp.HavingMax: _AGGREGATE_ORDER,
    exp.Any: Refusal("ANY and SOME subqueries are not supported", "use IN or EXISTS", ("ANY", "SOME")),
    exp.All: Refusal("ALL subqueries are not supported", "use NOT EXISTS", ("ALL",)),
    exp.ILike: Refusal("ILIKE is not supported", "lower(x) LIKE 'pattern'"),
    exp.RegexpLike: _REGEX,
    exp.RegexpILike: _REGEX,
    exp.SimilarTo: _REGEX,
    exp.Glob: _REGEX,
    exp.Placeholder: _PARAMETER,
    exp.Parameter: _PARAMETER,
    exp.SessionParameter: _PARAMETER,
    exp.Lambda: Refusal("lambda functions are not supported", "use CASE and plain functions"),
    exp.Kwarg: Refusal("arguments by name are not supported", "write them in their order: f(a, b)"),
    exp.PropertyEQ: Refusal("arguments by name are not supported", "write them in their order: f(a, b)"),
    exp.Bracket: _NESTED,
    exp.Dot: _NESTED,
    exp.Array: _NESTED,
    exp.Map: _NESTED,
    exp.Struct: _NESTED,
    exp.Slice: _NESTED,
    exp.ArrayContainsAll: _NESTED,
    exp.ArrayContainedBy: _NESTED,
    exp.ArrayOverlaps: _NESTED,
    exp.JSONExtract: _JSON_PATH,
    exp.JSONExtractScalar: _JSON_PATH,
    exp.JSONBExtract: _JSON_PATH,
    exp.JSONBExtractScalar: _JSON_PATH,
    exp.Collate: Refusal(
        "collations are not supported", "strings compare byte by byte: compare lower(x)", ("COLLATE",)
    ),
    exp.AtTimeZone: _ZONE,
    exp.BitwiseAnd: _BITS,
    exp.BitwiseOr: _BITS,
    exp.BitwiseXor: _BITS,
    exp.BitwiseNot: _BITS,
    exp.BitwiseLeftShift: _BITS,
    exp.BitwiseRightShift: _BITS,
    exp.Xor: Refusal("XOR is not supported", "a <> b for booleans", ("XOR",)),
    exp.BitString: _CONSTANT,
    exp.ByteString: _CONSTANT,
    exp.National: _CONSTANT,
    exp.UnicodeString: _CONSTANT,
    exp.Unnest: Refusal("functions in FROM are not supported", "use one row for each value, in a table", ("UNNEST",)),
    exp.Values: Refusal("VALUES in FROM is not supported", "put the rows into a table", ("VALUES",)),
    exp.Rollup: Refusal(_GROUPING, _GROUPINGS, ("ROLLUP", "WITH")),
    exp.Cube: Refusal(_GROUPING, _GROUPINGS, ("CUBE", "WITH")),
    exp.GroupingSets: Refusal(_GROUPING, _GROUPINGS, ("GROUPING",)),
    exp.Lateral: Refusal("LATERAL is not supported", "join with ON instead", ("LATERAL",)),
    exp.TableSample: Refusal("TABLESAMPLE is not decided by the rows of a view", "filter with WHERE", ("TABLESAMPLE",)),
    exp.Aliases: Refusal("this form of alias is not supported", "expression AS name"),
    exp.Hint: Refusal("hints are not supported", _NO_HINTS, ("/*+",)),
    exp.Fetch: Refusal("FETCH FIRST is not supported", "LIMIT n", ("FETCH",)),
    exp.Prior: Refusal("PRIOR is not supported", "unroll the levels you need", ("PRIOR",)),
    exp.Intersect: Refusal(
        "INTERSECT is not supported", "use SELECT DISTINCT … WHERE IN or EXISTS (SELECT …)", ("INTERSECT",)
    ),
    exp.Except: Refusal(
        "EXCEPT is not supported", "use SELECT DISTINCT … WHERE NOT EXISTS (SELECT …)", ("EXCEPT", "MINUS")
    ),
}

_LATERAL_VIEW = Refusal(
    "LATERAL VIEW is not supported", "arrays and maps are not supported: use one row for each value", ("LATERAL",)
)
_PIVOT = Refusal("PIVOT is not supported", _FILTER, ("PIVOT", "UNPIVOT"))
_TRAVEL = Refusal(
    "time travel inside a query is not supported",
    "read with at=… instead",
    ("VERSION", "TIMESTAMP", "FOR", "AT", "BEFORE"),
)
_RETURNING = Refusal("RETURNING is not supported", "read the rows after writing them", ("RETURNING",))
_SAMPLE = KINDS[exp.TableSample]

PARTS: dict[str, Refusal] = {
    # of queries
    "sort": Refusal("SORT BY is not supported", _SORT, ("SORT",)),
    "distribute": Refusal("DISTRIBUTE BY is not supported", _SORT, ("DISTRIBUTE",)),
    "cluster": Refusal("CLUSTER BY is not supported", _SORT, ("CLUSTER",)),
    "qualify": Refusal(
        "QUALIFY is not supported", "window functions are not supported: use GROUP BY and HAVING", ("QUALIFY",)
    ),
    "laterals": _LATERAL_VIEW,
    "windows": Refusal(_WINDOW.message, _WINDOW.hint, ("WINDOW",)),
    "pivots": _PIVOT,
    "sample": _SAMPLE,
    "hint": KINDS[exp.Hint],
    "hints": KINDS[exp.Hint],
    "into": Refusal("SELECT INTO is not supported", "CREATE MATERIALIZED VIEW … AS SELECT …", ("INTO",)),
    "connect": Refusal(
        "CONNECT BY is not supported", "unroll the levels you need, with a join for each", ("START", "CONNECT")
    ),
    "locks": Refusal(
        "FOR UPDATE and FOR SHARE are not supported", "reads need no locks: each sees one snapshot", ("FOR",)
    ),
    "for_": Refusal("FOR is not supported after a query", "end the query here", ("FOR",)),
    "match": Refusal("MATCH_RECOGNIZE is not supported", "join the table with itself", ("MATCH_RECOGNIZE",)),
    "settings": Refusal("SETTINGS is not supported", "end the query here", ("SETTINGS",)),
    "options": Refusal("OPTION is not supported", "end the query here", ("OPTION",)),
    "prewhere": Refusal("PREWHERE is not supported", "use WHERE", ("PREWHERE",)),
    "by_name": Refusal(
        "BY NAME is not supported", "list the columns in the same order on both sides", ("BY", "CORRESPONDING")
    ),
    # of tables
    "version": _TRAVEL,
    "when": _TRAVEL,
    "system_time": _TRAVEL,
    "changes": _TRAVEL,
    "ordinality": Refusal("WITH ORDINALITY is not supported", "number the rows before writing them", ("WITH",)),
    "partition": Refusal(
        "PARTITION is not supported", "filter with WHERE; a base table has no partitions", ("PARTITION",)
    ),
    # of writes
    "returning": _RETURNING,
    "conflict": Refusal("ON CONFLICT is not supported", "INSERT INTO replaces rows of equal keys", ("ON",)),
    "overwrite": Refusal(
        "INSERT OVERWRITE is not supported", "INSERT INTO replaces rows of equal keys", ("OVERWRITE",)
    ),
    "symmetric": Refusal(
        "BETWEEN SYMMETRIC is not supported",
        "put the smaller bound first: x BETWEEN 1 AND 9",
        ("SYMMETRIC", "ASYMMETRIC"),
    ),
}
"""Parts that mean the same at every kind of node that has them."""

_STAR = "list the columns"
OWN_PARTS: dict[tuple[type[exp.Expr], str], Refusal] = {
    (exp.Distinct, "on"): Refusal("DISTINCT ON is not supported", "use GROUP BY with min or max", ("ON",)),
    (exp.Select, "kind"): Refusal("SELECT AS STRUCT and AS VALUE are not supported", _ARRAYS, ("STRUCT", "VALUE")),
    (exp.Select, "exclude"): Refusal("EXCLUDE after the SELECT list is not supported", "* EXCEPT (a, b)", ("EXCLUDE",)),
    (exp.Group, "rollup"): KINDS[exp.Rollup],
    (exp.Group, "cube"): KINDS[exp.Cube],
    (exp.Group, "grouping_sets"): KINDS[exp.GroupingSets],
    (exp.Values, "alias"): KINDS[exp.Values],
    (exp.Group, "totals"): Refusal("WITH TOTALS is not supported", _GROUPINGS, ("WITH",)),
    (exp.With, "recursive"): Refusal("WITH RECURSIVE is not supported", "unroll the levels you need", ("RECURSIVE",)),
    (exp.Star, "replace"): Refusal("* REPLACE is not supported", _STAR, ("REPLACE",)),
    (exp.Star, "rename"): Refusal("* RENAME is not supported", _STAR, ("RENAME",)),
    (exp.Star, "ilike"): Refusal("* ILIKE is not supported", _STAR, ("ILIKE",)),
    (exp.Table, "db"): Refusal(
        "table {text} has a schema in its name", "one database has one schema: write the bare name", whole=True
    ),
    (exp.Table, "this"): Refusal("functions in FROM are not supported", "read from a table, a view or (SELECT …)"),
    (exp.Table, "only"): Refusal("FROM ONLY is not supported", "write the name of the table alone", ("ONLY",)),
    (exp.Table, "format"): Refusal("files in FROM are not supported", "load the file into a table", ()),
    (exp.TableAlias, "this"): Refusal("this form of alias is not supported", _PLAIN_NAME, ("@", "$", ":", "?")),
    (exp.TableAlias, "columns"): Refusal("this form of alias is not supported", _PLAIN_NAME),
    (exp.Alias, "alias"): Refusal("this form of alias is not supported", "expression AS name"),
    (exp.Column, "db"): Refusal("column {text} has too many parts", "write table.column", whole=True),
    (exp.Column, "join_mark"): Refusal("(+) is not supported", "use LEFT JOIN or RIGHT JOIN with ON"),
    (exp.Join, "global_"): Refusal("GLOBAL JOIN is not supported", "remove GLOBAL", ("GLOBAL",)),
    (exp.Join, "match_condition"): Refusal("MATCH_CONDITION is not supported", "JOIN … ON", ("MATCH_CONDITION",)),
    (exp.Join, "hint"): Refusal("hints of joins are not supported", _NO_HINTS),
    (exp.Join, "using"): Refusal("USING takes names of columns", "JOIN … USING (a, b)"),
    (exp.Insert, "this"): Refusal("INSERT writes a table by its name", "INSERT INTO t [(columns)] VALUES (…)"),
    (exp.Insert, "by_name"): Refusal(
        "BY NAME is not supported", "list the columns: INSERT INTO t (a, b) VALUES …", ("BY",)
    ),
    (exp.Insert, "where"): Refusal(
        "REPLACE WHERE is not supported", "DELETE by key, then INSERT", ("REPLACE", "WHERE")
    ),
    (exp.Insert, "alternative"): Refusal(
        "INSERT OR … is not supported", "INSERT INTO replaces rows of equal keys", ("OR",)
    ),
    (exp.Insert, "with_"): Refusal("WITH before INSERT is not supported", "INSERT INTO t VALUES (…)", ("WITH",)),
    (exp.Delete, "using"): Refusal("DELETE … USING is not supported", "DELETE FROM t WHERE key = …", ("USING",)),
    (exp.Delete, "order"): Refusal("ORDER BY in DELETE is not supported", "DELETE FROM t WHERE key = …", ("ORDER",)),
    (exp.Delete, "limit"): Refusal(
        "LIMIT in DELETE is not supported", "DELETE FROM t WHERE key = …", ("LIMIT", "FETCH")
    ),
    (exp.Limit, "limit_options"): Refusal("LIMIT takes a number of rows alone", "LIMIT n"),
    (exp.Order, "siblings"): Refusal("ORDER SIBLINGS BY is not supported", "ORDER BY a, b", ("SIBLINGS",)),
    (exp.Ordered, "with_fill"): Refusal("WITH FILL is not supported", "join with a table of all values", ("WITH",)),
    (exp.CTE, "materialized"): Refusal(
        "MATERIALIZED in WITH is not supported", "WITH name AS (SELECT …)", ("MATERIALIZED",)
    ),
    (exp.In, "unnest"): Refusal("IN UNNEST is not supported", "list the values: x IN (1, 2)", ("UNNEST",)),
    (exp.In, "field"): Refusal("IN needs parentheses", "x IN (1, 2) or x IN (SELECT …)", ("IN",)),
    (exp.In, "is_global"): Refusal("GLOBAL IN is not supported", "remove GLOBAL", ("GLOBAL",)),
    (exp.Exists, "expression"): Refusal("functions over arrays are not supported", _ARRAYS),
    (exp.Cast, "format"): Refusal(
        "CAST … FORMAT is not supported", "write the text as CAST reads it: '2024-05-01'", ("FORMAT",)
    ),
    (exp.Cast, "default"): Refusal("CAST … DEFAULT is not supported", "coalesce(try_cast(x AS t), …)", ("DEFAULT",)),
    (exp.DataType, "collate"): Refusal("collations are not supported", "strings compare byte by byte", ("COLLATE",)),
    (exp.Trim, "collation"): Refusal("collations are not supported", "strings compare byte by byte", ("COLLATE",)),
    (exp.Substring, "zero_start"): Refusal("substring takes 2 to 3 arguments", "substring(text, start, length)"),
    (exp.StrPosition, "position"): Refusal("position with a start is not supported", "use substring first"),
    (exp.StrPosition, "occurrence"): Refusal("position takes 2 arguments", "position('x' IN text)"),
    (exp.Escape, "expression"): Refusal("ESCAPE needs a constant", "LIKE 'a!%' ESCAPE '!'"),
    (exp.Escape, "this"): Refusal("ESCAPE belongs after LIKE", "x LIKE 'a!%' ESCAPE '!'"),
    (exp.Is, "expression"): Refusal(
        "IS takes NULL, TRUE or FALSE", "x IS NULL, x IS NOT TRUE, a IS DISTINCT FROM b", ("IS",)
    ),
    (exp.Extract, "this"): Refusal("EXTRACT takes the name of a unit", "extract(year FROM d)"),
    (exp.Interval, "unit"): Refusal("this form of interval is not supported", "interval '2' day, interval '1' month"),
}
OWN_PARTS.update({(exp.TryCast, name): OWN_PARTS[exp.Cast, name] for name in ("format", "default")})

_WITHOUT_PARENTHESES = {name.replace("_", ""): name for name in functions.NONDETERMINISTIC}
"""`current_date` and its like are kinds of nodes of their own, by these names."""

_JOINS = {
    "NATURAL": Refusal("NATURAL JOIN is not supported", "name the columns: JOIN … USING (…)", ("NATURAL",)),
    "ASOF": Refusal(
        "ASOF JOIN is not supported", "keep the row that counts in a view of its own: max(time), then join", ("ASOF",)
    ),
}

_HINTS = {
    "OUTER": "LEFT, RIGHT or FULL OUTER JOIN",
    "ASYMMETRIC": "x BETWEEN low AND high",
    "MATERIALIZED": "WITH name AS (SELECT …)",
    "WITH": "end the clause here",
    "DISTINCT": "SELECT DISTINCT, count(DISTINCT x)",
    "ALL": "SELECT ALL, UNION ALL",
    "AS": "a name follows AS: x AS name",
    "FROM": "SELECT a FROM t: say which columns you want",
    "THEN": "CASE WHEN … THEN … END",
    ".": "one database has one schema: write the bare name",
    "*": "SELECT * FROM t, or t.*",
    "@": "write the name of the table alone",
}


def of_part(source: SqlText, node: exp.Expr, name: str | None, value: Any) -> SqlError | None:
    """The refusal of a part of a node, or of the node itself (`name` None), if there are words for it."""
    if isinstance(node, exp.DataType | exp.DataTypeParam):
        return _of_type(source, node)
    if name is None:
        called = _WITHOUT_PARENTHESES.get(type(node).__name__.lower())
        if called is not None:
            return nondeterministic(source, called, word(source, (called.upper(),)) or node)
        kind = KINDS.get(type(node))
        if kind is None and isinstance(node, exp.Order | exp.Limit | exp.Offset):
            kind = _AGGREGATE_ORDER
        return None if kind is None else kind.error(source, node, node.parent or node)
    refusal = OWN_PARTS.get((type(node), name)) or PARTS.get(name)
    if isinstance(node, exp.Join) and name in ("method", "kind"):
        refusal = _JOINS.get(str(value).upper())
    if refusal is None and isinstance(value, exp.Expr):
        refusal = KINDS.get(type(value))
    return None if refusal is None else refusal.error(source, value[0] if isinstance(value, list) else value, node)


def nondeterministic(source: SqlText, name: str, at: exp.Expr | int | None) -> SqlError:
    """The refusal of a function whose value changes without a write."""
    return source.unsupported(
        f"function {name} is not decided by the rows of a view",
        at,
        "store the value in a column, and compare with it when you read",
    )


def of_word(source: SqlText, token: Token) -> SqlError:
    """The refusal of a word that nothing in the statement accounts for."""
    if source.tokens[0].text.upper() == "FROM" and word(source, ("SELECT",)) is None:
        return source.error("SELECT is missing", source.tokens[0], "SELECT * FROM t")
    before = source.tokens[max(source.tokens.index(token) - 1, 0)]
    if token.text == "(" and is_type(before.text.lower()):
        return source.unsupported(
            f"type {before.text.lower()} with a size is not supported", before, "use string, and left(s, n) to cut it"
        )
    if before.text.upper() in ("AS", "::") and token.token_type in Dialect.Parser.TYPE_TOKENS:
        return source.unsupported(f"type {token.text.lower()} is not supported", token, f"types: {KNOWN}")
    hint = _HINTS.get(token.text.upper().split(" ")[0], "remove it, or check the words around it")
    return source.unsupported(f"{token.text!r} is not supported here", token, hint)


def of_node(source: SqlText, node: exp.Expr) -> SqlError:
    """The last resort: the word at which the node begins."""
    start = first_offset(node)
    return of_word(source, next((t for t in source.tokens if t.start == start), source.tokens[0]))


def _of_type(source: SqlText, node: exp.Expr) -> SqlError:
    inner = node
    while isinstance(inner.parent, exp.DataType | exp.DataTypeParam):
        inner = inner.parent
    value = inner.parent.this if inner.parent is not None else inner
    at = None
    after = first_offset(value) if isinstance(value, exp.Expr) else None
    for token, following in zip(source.tokens, source.tokens[1:], strict=False):
        if after is not None and token.start > after and token.text.upper() in ("AS", "::"):
            at = following.start
            break
    text = "" if at is None else f" {_type_text(source, at)}"
    return source.unsupported(f"type{text} is not supported", inner if at is None else at, f"types: {KNOWN}")


def _type_text(source: SqlText, at: int) -> str:
    """A type as written: a name, and what its brackets hold."""
    depth, end = 0, at
    for token in source.tokens:
        if token.start < at:
            continue
        depth += token.text.count("<") + token.text.count("(")
        if depth <= 0 and token.start > at:
            break
        depth -= token.text.count(">") + token.text.count(")")
        end = token.end
    return source.text[at : end + 1].lower()


def _written(source: SqlText, node: exp.Expr) -> str:
    """The text from the first to the last mark inside a node."""
    marks = [n.meta for n in node.walk() if "start" in n.meta]
    return source.text[min(m["start"] for m in marks) : max(m["end"] for m in marks) + 1] if marks else "here"


def _offset(source: SqlText, words: tuple[str, ...], part: Any, near: exp.Expr) -> int | exp.Expr | None:
    """Where the part begins: at one of its words, if it has such, nearest to what is marked in the text."""
    start = first_offset(part) if isinstance(part, exp.Expr) else None
    if words and start is not None and isinstance(part, exp.Expr):
        before = offset_before(source, part, words)
        if before != start:
            return before
    if words:
        begin = start if start is not None else first_offset(near)
        marked = [t.start for t in source.tokens if t.text.upper().split(" ")[0] in words]
        later = [offset for offset in marked if begin is None or offset >= begin]
        found = next(iter(later or marked), None)
        if found is not None:
            return found
    if start is not None and isinstance(part, exp.Expr):
        return part
    return near if first_offset(near) is not None else word(source, (source.tokens[0].text.upper(),))
