"""The grammar that is understood: for each kind of node of sqlglot's trees, the words it is written with.

sqlglot reads many dialects and is forgiving: it keeps parts that the binder never asks for (`BETWEEN SYMMETRIC`), and
drops words without a trace (`FROM . t`). Both would be answered as if the words were not there. So a tree is bound
only if its text can be written again, word for word, from the parts named here: `belvedere.sql.reading` checks that. A
part or a word that a newer sqlglot brings is refused until it is added here *and* read by the binder.

    {x}         the part x of the node                   WORD        this word
    {x,}        a list, separated by commas              [ … ]       may be missing
    {x*}        a list, one after the other              ( … | … )   one of these
    {x=WORDS}   a flag: if set, these words              ~( … ~)     parentheses of the text
    {x!}        a part that is words: a side of a join   <name>      a rule of `reading` for what templates cannot say
"""

from __future__ import annotations

from sqlglot import exp

_TAIL = "[{order}] [{limit}] [{offset}]"
_SELECT = "SELECT [ALL] [{distinct}] {expressions,}"
_FROM = "{from_} [{joins*}]"
_ALIAS = "( AS {alias} | <name> {alias} )"
UNION = f"{{this}} UNION <union> {{expression}} {_TAIL}"

NOT_NAMES = frozenset(
    """ALL AND ANTI AS ASC BETWEEN BY CASE COLLATE CROSS DESC DISTINCT ELSE END ESCAPE EXCEPT EXISTS FALSE FETCH FILTER
    FOR FROM FULL GROUP HAVING IN INNER INTERSECT INTERVAL INTO IS JOIN LATERAL LEFT LIKE LIMIT MINUS NATURAL NOT NULL
    NULLS OFFSET ON OR ORDER OUTER OVER PARTITION QUALIFY RIGHT SELECT SEMI SET TABLESAMPLE THEN TRUE UNION USING VALUES
    WHEN WHERE WINDOW WITH WITHIN""".split()
)
"""Words of clauses. As a name they need AS or quotes: `FROM t ORDER` is half a clause, no table called ORDER."""


def _after_with(query: str) -> str:
    # sqlglot forgets the parentheses of WITH … (SELECT …).
    return f"( [{{with_}}] {query} | {{with_}} ~( {query} ~) {_TAIL} )"


def _operator(*signs: str) -> str:
    return "{this} ( " + " | ".join(signs) + " ) {expression}"


FORMS: dict[type[exp.Expr], str] = {
    # Queries
    exp.Select: _after_with(
        f"( {_SELECT} [ {_FROM} ] | {_FROM} {_SELECT} ) [{{where}}] [{{group}}] [{{having}}] {_TAIL}"
    ),
    exp.Union: _after_with(UNION),
    exp.Subquery: f"[{{with_}}] ~( {{this}} ~) [ {_ALIAS} ] [{{joins*}}] {_TAIL}",
    exp.With: "WITH {expressions,}",
    exp.CTE: "{alias} [AS] ~( {this} ~)",
    exp.From: "FROM {this}",
    exp.Table: f"{{this}} [ {_ALIAS} ] [{{joins*}}]",
    exp.TableAlias: "{this} [ ~( {columns,} ~) ]",
    exp.Join: "( COMMA {this} | [{side!}] [{kind!}] JOIN {this} [ ON {on} | USING ~( {using,} ~) ] )",
    exp.Where: "WHERE {this}",
    exp.Group: "GROUP BY ( ALL | {expressions,} )",
    exp.Having: "HAVING {this}",
    exp.Distinct: "DISTINCT [{expressions,}]",
    exp.Order: "ORDER BY {expressions,}",
    exp.Ordered: "{this} <direction>",
    exp.Limit: "LIMIT {expression}",
    exp.Offset: "OFFSET {expression}",
    exp.Alias: f"{{this}} {_ALIAS}",
    exp.Star: "<leaf> [ ( EXCEPT | EXCLUDE ) ~( {except_,} ~) ]",
    # Writes
    exp.Insert: "INSERT INTO [TABLE] {this} {expression}",
    exp.Schema: "{this} ~( {expressions,} ~)",
    exp.Values: "VALUES {expressions,}",
    exp.Delete: "DELETE FROM {this} [{where}]",
    # Names and constants
    exp.Identifier: "<leaf>",
    exp.Var: "<leaf>",
    exp.Literal: "<leaf>",
    exp.HexString: "<leaf>",
    exp.RawString: "<leaf>",
    exp.Null: "NULL",
    exp.Boolean: "<boolean>",
    exp.Column: "[ {table} . ] {this}",
    exp.Concat: "{expressions*}",
    exp.Interval: "INTERVAL <amount>",
    # Operators
    exp.Paren: "~( {this} ~)",
    exp.Tuple: "~( {expressions,} ~)",
    exp.Add: _operator("+"),
    exp.Sub: _operator("-"),
    exp.Mul: _operator("*"),
    exp.Div: _operator("/"),
    exp.Mod: _operator("%"),
    exp.IntDiv: _operator("DIV"),
    exp.Neg: "- {this}",
    exp.DPipe: _operator("||"),
    exp.EQ: _operator("=", "=="),
    exp.NEQ: _operator("<>", "!="),
    exp.LT: _operator("<"),
    exp.LTE: _operator("<="),
    exp.GT: _operator(">"),
    exp.GTE: _operator(">="),
    exp.NullSafeEQ: _operator("<=>", "IS NOT DISTINCT FROM"),
    exp.NullSafeNEQ: _operator("IS DISTINCT FROM"),
    exp.And: _operator("AND"),
    exp.Or: _operator("OR"),
    exp.Not: "( NOT {this} | ! {this} | <negated> )",
    exp.Is: "{this} IS <not> {expression}",
    exp.In: "{this} <not> IN ( ~( {expressions,} ~) | {query} | ~( {query} ~) )",
    exp.Between: "{this} <not> BETWEEN {low} AND {high}",
    exp.Like: "{this} <not> LIKE {expression}",
    exp.Escape: "{this} ESCAPE {expression}",
    exp.Exists: "EXISTS ( {this} | ~( {this} ~) )",
    # Functions with a grammar of their own
    exp.Case: "CASE [{this}] {ifs*} [ ELSE {default} ] END",
    exp.If: "( WHEN {this} THEN {true} | IF ~( {this} COMMA {true} [ COMMA {false} ] ~) )",
    exp.Cast: "( <typed> {this} | {this} :: {to} )",
    exp.TryCast: "( ( CAST | TRY_CAST ) ~( {this} AS {to} ~) | {this} :: {to} | <suffixed> )",
    exp.DataType: "<type> [ ~( {expressions,} ~) ]",
    exp.DataTypeParam: "{this}",
    exp.Extract: "EXTRACT ~( {this} FROM {expression} ~)",
    exp.Trim: (
        "TRIM ~( ( [{position!}] [{expression}] [FROM] {this} | {expression} COMMA {this} "
        "| {this} COMMA {expression} ) ~)"
    ),
    exp.Substring: (
        "( SUBSTRING | SUBSTR ) ~( {this} "
        "[ COMMA {start} [ COMMA {length} ] | FROM {start} [ FOR {length} ] | FOR {length} ] ~)"
    ),
    exp.StrPosition: "POSITION ~( {substr} ( IN | COMMA ) {this} ~)",
    exp.Filter: "{this} FILTER ~( {expression} ~)",
    exp.Anonymous: "<leaf> ~( [{expressions,}] ~)",
}

WITHOUT_WORDS: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Literal: ("this", "is_string"),
    exp.Identifier: ("this", "quoted"),
    exp.Var: ("this",),
    exp.HexString: ("this",),
    exp.RawString: ("this",),
    exp.Boolean: ("this",),
    exp.Anonymous: ("this",),
    exp.DataType: ("this",),
    exp.Interval: ("this", "unit"),
    exp.Union: ("distinct",),
    exp.Ordered: ("desc", "nulls_first"),
    exp.Like: ("negate",),
    exp.Group: ("all",),
    exp.TryCast: ("safe", "requires_string"),
    exp.Div: ("typed", "safe"),
    exp.DPipe: ("safe",),
    exp.Concat: ("safe", "coalesce"),
}
"""Parts beside those of the form: read by a rule, or set by the dialect for every text alike (`Div.typed`)."""

_QUERIES = (exp.Select, exp.Union, exp.Subquery)
INSIDE: dict[type[exp.Expr], tuple[type[exp.Expr], ...]] = {
    exp.Order: _QUERIES,
    exp.Limit: _QUERIES,
    exp.Offset: _QUERIES,
}
"""Where these may stand: sqlglot also reads them as arguments of functions."""

_RELATIONS = (exp.Table, exp.Subquery)
ONLY: dict[tuple[type[exp.Expr], str], tuple[type[exp.Expr], ...]] = {
    (exp.From, "this"): _RELATIONS,
    (exp.Join, "this"): _RELATIONS,
    (exp.Table, "this"): (exp.Identifier,),
    (exp.TableAlias, "this"): (exp.Identifier,),
    (exp.TableAlias, "columns"): (exp.Identifier,),
    (exp.Alias, "alias"): (exp.Identifier,),
    (exp.Column, "this"): (exp.Identifier, exp.Star),
    (exp.Column, "table"): (exp.Identifier,),
    (exp.Join, "using"): (exp.Identifier, exp.Column),
    (exp.Star, "except_"): (exp.Identifier, exp.Column),
    (exp.Schema, "this"): (exp.Table,),
    (exp.Schema, "expressions"): (exp.Identifier,),
    (exp.Insert, "this"): (exp.Table, exp.Schema),
    (exp.Delete, "this"): (exp.Table,),
    (exp.Extract, "this"): (exp.Var, exp.Identifier),
    (exp.Interval, "unit"): (exp.Var,),
    (exp.DataTypeParam, "this"): (exp.Literal,),
    (exp.DataType, "expressions"): (exp.DataTypeParam,),
    (exp.Escape, "expression"): (exp.Literal,),
    (exp.Escape, "this"): (exp.Like,),
    (exp.Is, "expression"): (exp.Null, exp.Boolean),
}
"""Parts that the binder reads by name, so that only these kinds of node carry all there is to know."""
