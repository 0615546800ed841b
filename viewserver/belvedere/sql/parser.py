"""Text to syntax trees: the only module that knows how sqlglot parses.

sqlglot rewrites many functions into classes of its own while parsing (`date_add` becomes `TsOrDsAdd`, …). Spark's
meaning hangs on the names as written, so the dialect below switches that off: a call stays a name with arguments, and
the table in `belvedere.sql.functions` decides. Tokens keep their offsets, which become line and column in messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from belvedere.errors import SqlError, UnsupportedSql

_KEPT = ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "SUBSTRING", "SUBSTR", "TRIM")
"""Functions with a grammar of their own (`CAST(x AS t)`, `EXTRACT(u FROM d)`, …)."""

QUOTED = (TokenType.STRING, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.HEX_STRING, TokenType.RAW_STRING)
"""Tokens whose text is never a keyword."""


class _Parser(SparkParser):
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {k: v for k, v in SparkParser.FUNCTION_PARSERS.items() if k in _KEPT}

    def _warn_unsupported(self) -> None:
        # What sqlglot would log and pass on unparsed is a mistake here.
        self.raise_error("Invalid expression / Unexpected token")


class _Tokenizer(Spark.Tokenizer):
    # As in Spark 4, a doubled quote inside a string is the quote itself.
    STRING_ESCAPES = ["\\", "'", '"']
    # Otherwise SHOW and EXPLAIN would swallow the rest of the statement as one string.
    COMMANDS: ClassVar[set[TokenType]] = set()


class Dialect(Spark):
    """Spark's grammar with functions left as they were written."""

    Tokenizer = _Tokenizer
    Parser = _Parser


@dataclass(frozen=True, slots=True)
class SqlText:
    """The whole text that positions refer to, and the tokens of one statement in it."""

    text: str
    tokens: tuple[Token, ...]

    @property
    def sql(self) -> str:
        """The statement as written, without what surrounds it."""
        return self.text[self.tokens[0].start : self.tokens[-1].end + 1] if self.tokens else ""

    def slice(self, start: int, stop: int | None = None) -> SqlText:
        return SqlText(self.text, self.tokens[start:stop])

    def where(self, node: exp.Expr | Token | int | None) -> tuple[int, int] | None:
        """Line and column (from 1) where a node, token or offset begins."""
        if isinstance(node, exp.Expr):
            offset = nearest_offset(node)
        elif node is None or isinstance(node, int):
            offset = node
        else:
            offset = node.start
        if offset is None:
            return None
        before = self.text[:offset]
        return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1

    @property
    def _start(self) -> tuple[int, int]:
        return self.where(self.tokens[0] if self.tokens else 0) or (1, 1)

    def error(self, message: str, node: exp.Expr | Token | int | None, hint: str | None = None) -> SqlError:
        """A SqlError at the node, or where the statement begins if the node has no place; the caller raises it."""
        line, column = self.where(node) or self._start
        return SqlError(message, line=line, column=column, hint=hint)

    def too_deep(self) -> SqlError:
        """For trees that Python's stack cannot hold."""
        return self.unsupported("the statement is nested too deeply", self.tokens[0], "split it into several views")

    def unsupported(self, message: str, node: exp.Expr | Token | int | None, hint: str | None = None) -> UnsupportedSql:
        """The same for valid SQL outside the scope."""
        line, column = self.where(node) or self._start
        return UnsupportedSql(message, line=line, column=column, hint=hint)


def first_offset(node: exp.Expr) -> int | None:
    """The smallest offset known inside a node: sqlglot marks identifiers, literals and function names only."""
    found = [n.meta["start"] for n in node.walk() if "start" in n.meta]
    return min(found) if found else None


def nearest_offset(node: exp.Expr) -> int | None:
    """The same, or that of the nearest part around it: keywords carry no mark."""
    around: exp.Expr | None = node
    offset = first_offset(node)
    while offset is None and around is not None:
        around = around.parent
        offset = first_offset(around) if around is not None else None
    return offset


def offset_before(source: SqlText, node: exp.Expr, kinds: Sequence[str]) -> int | None:
    """Offset of the nearest token before the node whose text is one of `kinds`."""
    start = first_offset(node)
    if start is None:
        return None
    best = start
    for token in source.tokens:
        if token.start >= start:
            break
        if token.text.upper().split(" ")[0] in kinds:
            best = token.start
    return best


def word(source: SqlText, words: Sequence[str]) -> int | None:
    """Offset of the first token whose text is one of `words`: for things made of keywords alone."""
    return next((t.start for t in source.tokens if t.text.upper() in words), None)


def split_words(tokens: Sequence[Token]) -> list[tuple[str, Token]]:
    """Each word with its token: "PRIMARY KEY" and its like arrive as one token. Quoted things stay whole."""
    return [
        (part, token)
        for token in tokens
        for part in ([token.text] if token.token_type in QUOTED else token.text.split())
    ]


def tokenize(text: str) -> SqlText:
    """All tokens of a text."""
    try:
        tokens = Dialect().tokenize(text)
    except TokenError as error:
        quote = _unclosed(text)
        source = SqlText(text, ())
        raise source.error(
            "the text ends inside a string or comment" if quote is not None else "the text cannot be split into words",
            len(text) if quote is None else quote,
            "close the quote" if quote is not None else None,
        ) from error
    return SqlText(text, tuple(tokens))


def _unclosed(text: str) -> int | None:
    """Where the quote begins that nothing closes."""
    position, quote, start = 0, "", 0
    while position < len(text):
        char = text[position]
        if quote:
            if char == "\\" and quote != "`":
                position += 1
            elif char == quote:
                quote = ""
        elif text.startswith("--", position):
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
        elif char in "'\"`":
            quote, start = char, position
        position += 1
    return start if quote else None


def statements(text: str) -> list[SqlText]:
    """The statements of a script, separated by semicolons; empty ones are dropped."""
    whole = tokenize(text)
    found: list[SqlText] = []
    current: list[Token] = []
    for token in whole.tokens:
        if token.token_type is TokenType.SEMICOLON:
            if current:
                found.append(SqlText(text, tuple(current)))
            current = []
        else:
            current.append(token)
    if current:
        found.append(SqlText(text, tuple(current)))
    return found


def parse(source: SqlText) -> exp.Expr:
    """The syntax tree of one statement."""
    if not source.tokens:
        raise source.error("an empty statement", None, "write a SELECT or a CREATE")
    _check_commas(source)
    parser = Dialect().parser(error_level=ErrorLevel.IMMEDIATE)
    try:
        trees = parser.parse(list(source.tokens), source.text)
    except ParseError as error:
        _refuse(source, error)
    except TokenError as error:
        raise source.error("a string in the text cannot be read", None) from error
    except RecursionError:
        raise source.too_deep() from None
    tree = trees[0] if len(trees) == 1 else None
    if tree is None:
        raise source.error("expected one statement", source.tokens[0])
    return tree


def _check_commas(source: SqlText) -> None:
    # The grammar of sqlglot forgives a missing list element; Spark does not.
    closing = {TokenType.COMMA, TokenType.R_PAREN, TokenType.FROM, TokenType.WHERE}
    for token, following in zip(source.tokens, [*source.tokens[1:], None], strict=True):
        if token.token_type is TokenType.COMMA and (following is None or following.token_type in closing):
            found = f"{following.text!r}" if following is not None else "the end"
            raise source.error(f"syntax error: {found} after a comma", following or token, "remove the comma")


def _refuse(source: SqlText, error: ParseError) -> NoReturn:
    detail = error.errors[0] if error.errors else {}
    highlight = str(detail.get("highlight") or "")
    description = str(detail.get("description") or "syntax error")
    line, col = detail.get("line"), detail.get("col")
    at: Token | None = None
    for token in source.tokens:  # sqlglot gives the last character of the token
        if token.line == line and token.col == col:
            at = token
            break
    if at is None:
        at = source.tokens[-1]
    last = at is source.tokens[-1]
    if "got <Token token_type: TokenType.SENTINEL" in description or (last and description.startswith("Expect")):
        wanted = description.split(" but got")[0].replace("Expected ", "").replace("Expecting ", "")
        raise source.error(f"syntax error: the statement ends after {at.text!r}", at, f"{wanted} is missing") from error
    if description.startswith("Expecting"):
        wanted = description.removeprefix("Expecting ").split(".")[0]
        raise source.error(f"syntax error at {highlight!r}", at, f"{wanted!r} is missing before it") from error
    what = highlight or at.text
    raise source.error(f"syntax error at {what!r}", at, "check the words before it") from error


def sql_text(node: exp.Expr) -> str:
    """A node written out again, for names of unnamed columns and for messages."""
    return node.sql(dialect=Dialect, normalize_functions=False, comments=False)
