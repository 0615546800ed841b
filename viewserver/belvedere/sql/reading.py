"""Whether a statement was read to its last word: every part of its tree, and every word of its text.

First the tree: each part of each node must be one that `grammar.FORMS` names. Then the text: it is matched against the
forms of its own tree, so that a word which left no trace in the tree is found as well. The match keeps the set of
places where each part may end; identifiers and constants know their place in the text, so there is nearly always one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from belvedere.sql import refusals
from belvedere.sql.binder.datatypes import BINDABLE
from belvedere.sql.grammar import FORMS, INSIDE, NOT_NAMES, ONLY, UNION, WITHOUT_WORDS
from belvedere.sql.parser import QUOTED, SqlText, parse, split_words
from belvedere.sql.types_by_name import is_type

Ends = frozenset[int]
_NONE: Ends = frozenset()
_NEGATABLE = (exp.In, exp.Between, exp.Like, exp.Is)
_LITERALS = (TokenType.STRING, TokenType.NUMBER)


def read(source: SqlText) -> exp.Expr:
    """The syntax tree of one statement that was read to its last word."""
    tree = parse(source)
    check(source, tree)
    return tree


def check(source: SqlText, tree: exp.Expr) -> None:
    """Refuse a statement of which a part or a word would be ignored."""
    unread = next(_unread(tree), None)
    if unread is not None:
        refusal = refusals.of_part(source, unread.node, unread.name, unread.value)
        if refusal is not None:
            raise refusal
    try:
        stuck = _Match(source).first_unread(tree)
    except RecursionError:
        raise source.too_deep() from None
    if stuck is not None:
        raise refusals.of_word(source, stuck)
    if unread is not None:
        raise refusals.of_node(source, unread.node)


def parts(kind: type[exp.Expr]) -> frozenset[str]:
    """The parts of a kind of node that are read."""
    return _PARTS.get(kind, frozenset())


@dataclass(frozen=True, slots=True)
class Unread:
    """A part of a node that nobody reads; without a name, the node itself."""

    node: exp.Expr
    name: str | None
    value: Any


def _unread(tree: exp.Expr) -> Iterator[Unread]:
    for node in tree.walk(bfs=False):
        kind = type(node)
        if kind not in FORMS or (kind in INSIDE and not isinstance(node.parent, INSIDE[kind])):
            yield Unread(node, None, None)
            continue
        for name, value in node.args.items():
            if value is None or value is False or value == []:
                continue
            if name not in parts(kind):
                yield Unread(node, name, value)
                continue
            allowed = ONLY.get((kind, name))
            for child in value if isinstance(value, list) else [value]:
                if allowed is not None and not isinstance(child, allowed):
                    yield Unread(node, name, child)


# Forms, compiled once: sequences of items.


@dataclass(frozen=True, slots=True)
class _Word:
    text: str


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    mode: str = ""  # "," and "*": lists; "!": words; otherwise the words of a flag


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str


@dataclass(frozen=True, slots=True)
class _Choice:
    options: tuple[tuple[_Item, ...], ...]


_Item = _Word | _Part | _Rule | _Choice
_Form = tuple[_Item, ...]


@functools.cache
def _compiled(form: str) -> _Form:
    spaced = form
    for sign in "[]":
        spaced = spaced.replace(sign, f" {sign} ")
    words = spaced.split()
    items, end = _sequence(words, 0)
    assert end == len(words), form
    return items[0]


def _sequence(words: list[str], at: int) -> tuple[list[_Form], int]:
    """Options separated by `|`, up to a closing bracket or the end."""
    options: list[_Form] = []
    current: list[_Item] = []
    while at < len(words) and words[at] not in ("]", ")"):
        word = words[at]
        at += 1
        if word in ("[", "("):
            inner, at = _sequence(words, at)
            current.append(_Choice(tuple([*inner, ()] if word == "[" else inner)))
            at += 1
        elif word == "|":
            options.append(tuple(current))
            current = []
        elif word.startswith("<") and word.endswith(">") and len(word) > 3:
            current.append(_Rule(word[1:-1]) if word != "<=>" else _Word(word))
        elif word.startswith("{"):
            name, mode = word[1:-1], ""
            if "=" in name:
                name, mode = name.split("=")
            elif name[-1] in ",*!":
                name, mode = name[:-1], name[-1]
            current.append(_Part(name, mode))
        else:
            current.append(_Word({"~(": "(", "~)": ")", "COMMA": ","}.get(word, word)))
    return [*options, tuple(current)], at


def _named(form: _Form) -> frozenset[str]:
    found: set[str] = set()
    for item in form:
        if isinstance(item, _Part):
            found.add(item.name)
        elif isinstance(item, _Choice):
            found.update(name for option in item.options for name in _named(option))
    return frozenset(found)


_PARTS = {kind: _named(_compiled(form)) | set(WITHOUT_WORDS.get(kind, ())) for kind, form in FORMS.items()}


class _Match:
    """The words of a statement, and how far a tree explains them."""

    def __init__(self, source: SqlText):
        words = split_words(source.tokens)
        self.words = [("" if token.token_type in QUOTED else text.upper(), token) for text, token in words]
        self.furthest = 0
        self.known: dict[tuple[int, int], Ends] = {}  # by node and place: the options of a form share their parts

    def first_unread(self, tree: exp.Expr) -> Token | None:
        """The first word that no part of the tree is written with."""
        ends = self.node(tree, 0)
        if len(self.words) in ends:
            return None
        return self.words[min(self.furthest, len(self.words) - 1)][1]

    def word(self, at: int, text: str) -> bool:
        self.furthest = max(self.furthest, at)
        return at < len(self.words) and self.words[at][0] == text

    def node(self, node: exp.Expr, at: int) -> Ends:
        """Where the node may end if it begins here. Chains of operators lean to the left and are climbed in a loop."""
        chain = [node]
        while _is_chain(chain[-1]):
            chain.append(chain[-1].this)
        ends = self._whole(chain.pop(), at)
        while chain:
            form = _compiled(UNION if isinstance(chain[-1], exp.Union) else FORMS[type(chain[-1])])
            ends = self._sequence(chain[-1], form[_spine(form) + 1 :], ends)
            chain.pop()
        return ends

    def _whole(self, node: exp.Expr, at: int) -> Ends:
        place = (id(node), at)
        if place not in self.known:
            self.known[place] = self._unknown(node, at)
        return self.known[place]

    def _unknown(self, node: exp.Expr, at: int) -> Ends:
        form = FORMS.get(type(node))
        if form is None:
            self.furthest = max(self.furthest, at)
            return _NONE
        ends = self._sequence(node, _compiled(form), frozenset((at,)))
        if self.word(at, "+"):  # a sign that changes nothing, and leaves no trace
            ends |= self._whole(node, at + 1)
        return ends

    def _sequence(self, node: exp.Expr, form: _Form, starts: Ends) -> Ends:
        for item in form:
            found: set[int] = set()
            for at in starts:
                found |= self._item(node, item, at)
            starts = frozenset(found)
            if not starts:
                break
        return starts

    def _item(self, node: exp.Expr, item: _Item, at: int) -> Ends:
        match item:
            case _Word(text):
                return frozenset((at + 1,)) if self.word(at, text) else _NONE
            case _Rule(name):
                return _RULES[name](self, node, at)
            case _Choice(options):
                return frozenset(end for option in options for end in self._sequence(node, option, frozenset((at,))))
            case _Part(name, mode):
                return self._part(node.args.get(name), mode, at)

    def _part(self, value: Any, mode: str, at: int) -> Ends:
        if mode and mode not in ",*":  # words, or the words of a flag
            words = str(value or "").upper() if mode == "!" else mode if value else ""
            if mode == "!" and not words:
                return _NONE
            return self.all_words(words.split(), at)
        if isinstance(value, exp.Expr):
            return self.node(value, at)
        if not isinstance(value, list) or not value:
            return _NONE
        ends: Ends = frozenset((at,))
        for number, child in enumerate(value):
            if number and mode == ",":
                ends = frozenset(end + 1 for end in ends if self.word(end, ","))
            ends = frozenset(after for end in ends for after in self.node(child, end))
        return ends

    def all_words(self, texts: list[str], at: int) -> Ends:
        for text in texts:
            if not self.word(at, text):
                return _NONE
            at += 1
        return frozenset((at,))

    def token(self, at: int) -> Token | None:
        self.furthest = max(self.furthest, at)
        return self.words[at][1] if at < len(self.words) else None


def _spine(form: _Form) -> int:
    """Where `{this}` stands in the form of an operator."""
    return next(i for i, item in enumerate(form) if item == _Part("this"))


def _is_chain(node: exp.Expr) -> bool:
    if isinstance(node, exp.Union):
        return node.args.get("with_") is None
    return isinstance(node, exp.Binary) and type(node) in FORMS and not isinstance(node, exp.Like | exp.Is)


# What templates cannot say


def _leaf(match: _Match, node: exp.Expr, at: int) -> Ends:
    token = match.token(at)
    if token is None:
        return _NONE
    start = node.meta.get("start")
    if start is not None:
        fits = token.start == start and not (isinstance(node, exp.Star) and token.text != "*")
    else:  # written anew by the parser
        fits = token.text.upper() == node.name.upper()
        if fits:
            node.meta.update(start=token.start, end=token.end)  # so that a refusal can point at it
    return frozenset((at + 1,)) if fits else _NONE


def _boolean(match: _Match, node: exp.Expr, at: int) -> Ends:
    return match.all_words(["TRUE" if node.this else "FALSE"], at)


def _type(match: _Match, node: exp.Expr, at: int) -> Ends:
    token = match.token(at)
    if token is None or token.token_type in QUOTED:
        return _NONE
    name = match.words[at][0].lower()
    if not is_type(name):
        # Of other dialects' names (NUMBER) the tree shows only what they mean there; what has no meaning is left to the
        # binder, whose refusal knows what to use instead.
        foreign = isinstance(node.this, exp.DataType.Type) and node.this not in BINDABLE
        return frozenset((at + 1,)) if foreign else _NONE
    ends = {at + 1}
    if name == "double" and match.word(at + 1, "PRECISION"):
        ends.add(at + 2)
    return frozenset(ends)


def _name(match: _Match, node: exp.Expr, at: int) -> Ends:
    """A name without AS in front of it: any word that is quoted or begins no clause."""
    return _NONE if match.token(at) is None or match.words[at][0] in NOT_NAMES else frozenset((at,))


def _typed(match: _Match, node: exp.Expr, at: int) -> Ends:
    """DATE '2020-01-01'. sqlglot takes `INT 5` for a cast as well; in Spark it is none."""
    constant = match.token(at + 1)
    if constant is None or constant.token_type is not TokenType.STRING:
        return _NONE
    return frozenset((at + 1,)) if match.words[at][0] in ("DATE", "TIMESTAMP", "TIMESTAMP_LTZ") else _NONE


def _amount(match: _Match, node: exp.Expr, at: int) -> Ends:
    """'2' DAY, 2 DAY, -2 DAY and '2 days': the parser cuts them all into a string and a unit."""
    value, unit = node.this, node.args.get("unit")
    token = match.token(at)
    if token is None or unit is None:
        return _NONE
    if isinstance(value, exp.Literal):
        if token.text.upper().split() == [value.name.upper(), unit.name.upper()]:
            return frozenset((at + 1,))
        sign = "-" if value.name.startswith("-") and match.word(at, "-") else ""
        amount = match.token(at + len(sign))
        if amount is None or amount.token_type not in _LITERALS or sign + amount.text.strip() != value.name.strip():
            return _NONE
        ends: Ends = frozenset((at + len(sign) + 1,))
    else:
        ends = match.node(value, at)
    return frozenset(after for end in ends for after in match.node(unit, end))


def _union(match: _Match, node: exp.Expr, at: int) -> Ends:
    if not node.args.get("distinct"):
        return match.all_words(["ALL"], at)
    return frozenset((at, *match.all_words(["DISTINCT"], at)))


def _direction(match: _Match, node: exp.Expr, at: int) -> Ends:
    if node.args.get("desc"):
        ends = match.all_words(["DESC"], at)
    else:
        ends = frozenset((at, *match.all_words(["ASC"], at)))
    place = "FIRST" if node.args.get("nulls_first") else "LAST"
    return ends | frozenset(after for end in ends for after in match.all_words(["NULLS", place], end))


def _not(match: _Match, node: exp.Expr, at: int) -> Ends:
    """`a NOT IN (…)` is a NOT around the IN in the tree, or a mark at the node."""
    if not (node.args.get("negate") or isinstance(node.parent, exp.Not)):
        return frozenset((at,))
    return frozenset((at, *match.all_words(["NOT"], at)))


def _negated(match: _Match, node: exp.Expr, at: int) -> Ends:
    inner = node.this.this if isinstance(node.this, exp.Escape) else node.this
    return match.node(node.this, at) if isinstance(inner, _NEGATABLE) else _NONE


def _suffixed(match: _Match, node: exp.Expr, at: int) -> Ends:
    """5L, 1.5BD: one word of the text, cut by the tokenizer into a number, `::` and the suffix, all at one place."""
    number, suffix = match.token(at), match.token(at + 2)
    if number is None or suffix is None or number.start != suffix.start:
        return _NONE
    return frozenset((at + 3,)) if number.text == node.this.name else _NONE


_RULES: dict[str, Callable[[_Match, exp.Expr, int], Ends]] = {
    "leaf": _leaf,
    "boolean": _boolean,
    "name": _name,
    "type": _type,
    "typed": _typed,
    "amount": _amount,
    "union": _union,
    "direction": _direction,
    "not": _not,
    "negated": _negated,
    "suffixed": _suffixed,
}
