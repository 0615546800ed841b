"""In which order tables and views are applied and dropped, without a parser: the operator knows no SQL.

A view is put behind whatever its text mentions. A word in a comment or a text may add an edge that is none, which costs
nothing: the database decides what a query reads.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping

from belvedere_operator.decide.items import TABLE, Item

_WORD = re.compile(r"[^\W\d]\w*|`[^`]+`|\"[^\"]+\"")


@functools.lru_cache(maxsize=4096)
def mentioned(query: str) -> frozenset[str]:
    """Every word of a query that may be a name, in lower case."""
    return frozenset({found.strip('`"').lower() for found in _WORD.findall(query)})


def readers_last(items: Iterable[Item]) -> list[Item]:
    """Tables, then views, each behind the views that it mentions; circles are cut where they begin."""
    items = list(items)
    tables = sorted((item for item in items if item.kind == TABLE), key=lambda item: item.name)
    views = sorted((item for item in items if item.kind != TABLE), key=lambda item: item.name)
    by_name = {item.sql_name.lower(): item for item in views}
    ordered: dict[str, Item] = {}
    begun: set[str] = set()

    def visit(name: str) -> None:
        stack = [(name, iter(sorted(_reads(by_name[name], by_name))))]
        begun.add(name)
        while stack:
            current, rest = stack[-1]
            following = next((one for one in rest if one not in begun), None)
            if following is None:
                ordered[current] = by_name[current]
                stack.pop()
            else:
                begun.add(following)
                stack.append((following, iter(sorted(_reads(by_name[following], by_name)))))

    for name in by_name:
        if name not in begun:
            visit(name)
    return [*tables, *ordered.values()]


def closure(item: Item, items: Iterable[Item]) -> list[Item]:
    """Tables and views that an item mentions, directly or not, without itself; readers last."""
    by_name = {one.sql_name.lower(): one for one in items if one.key != item.key}
    found: dict[str, Item] = {}
    waiting = [item]
    while waiting:
        for name in mentioned(str(waiting.pop().raw_spec.get("query") or "")):
            if name in by_name and name not in found:
                found[name] = by_name[name]
                waiting.append(by_name[name])
    return readers_last(found.values())


def readers(item: Item, items: Iterable[Item]) -> list[Item]:
    """Views that mention an item, directly or not; readers last."""
    rest = [one for one in items if one.kind != TABLE and one.key != item.key]
    words = {one.key: mentioned(str(one.raw_spec.get("query") or "")) for one in rest}
    found: dict[tuple[str, str], Item] = {}
    waiting = [item]
    while waiting:
        name = waiting.pop().sql_name.lower()
        for one in rest:
            if one.key not in found and name in words[one.key]:
                found[one.key] = one
                waiting.append(one)
    return readers_last(found.values())


def _reads(item: Item, by_name: Mapping[str, Item]) -> frozenset[str]:
    words = mentioned(str(item.raw_spec.get("query") or ""))
    return (words & set(by_name)) - {item.sql_name.lower()}
