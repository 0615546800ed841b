"""Texts that people wrote (view tests, documentation, tests of the front end), and mutations of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

from tests.sql.fuzz.expressions import LITERALS, NAMES, TYPES, WRONG, WRONG_TYPES
from tests.sql.support import TABLES
from tests.sql.test_refusals import MISTAKES, UNSUPPORTED
from tests.sql.test_statements import REFUSED
from tests.views.format import FILES, parse

_WORD = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"[^\"]*\"|`[^`]*`|\w+|--[^\n]*|\s+|[^\w\s]")
_BLOCK = re.compile(r"^```sql\n(.*?)^```", re.M | re.S)
_CHARACTERS = "'\"`()[]{};,.*+-/%<>=!|&^~?:@#$\\ \n\t\0_aZ09eLDäß日\u00b2\u0660\ud7ff\ufeff😀"
_KEYWORDS = (
    "SELECT FROM WHERE GROUP BY HAVING JOIN LEFT OUTER FULL CROSS NATURAL ON USING UNION ALL DISTINCT AS WITH CASE "
    "WHEN THEN "
    "ELSE END IN EXISTS NOT AND OR BETWEEN SYMMETRIC LIKE ILIKE ESCAPE IS NULL TRUE INTERVAL DAY CAST FILTER OVER "
    "PARTITION "
    "ORDER LIMIT OFFSET VALUES INSERT INTO DELETE CREATE OR REPLACE MATERIALIZED VIEW TABLE PRIMARY KEY RETENTION "
    "DROP ALTER "
    "ADD COLUMN SHOW DESCRIBE EXPLAIN FORMAT LATERAL TABLESAMPLE PIVOT WINDOW QUALIFY ANY SOME RECURSIVE EXCEPT "
    "ROLLUP NULLS FIRST"
).split()


@cache
def corpora() -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """Pairs of (statements that make the schema, texts over it)."""
    found: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    for path in FILES:
        blocks = [b for b in parse(path).blocks if b.kind in ("statement", "error")]
        texts = [b.sql.split("\n----")[0] for b in blocks]
        setup = [
            b.sql for b in blocks if b.kind == "statement" and re.match(r"\s*(create\s+table|insert)", b.sql, re.I)
        ]
        found.append((tuple(setup), tuple(texts)))
    own = tuple(str(case[0]) for case in (*UNSUPPORTED, *MISTAKES, *REFUSED))
    found += [(TABLES, own)] * 20  # many texts of many kinds, over one schema
    docs = Path(__file__).parents[3] / "docs"
    for page in sorted(docs.rglob("*.md")):
        texts = [t for block in _BLOCK.findall(page.read_text()) for t in block.split(";") if t.strip()]
        if texts:
            found.append((tuple(t for t in texts if re.match(r"\s*create\s+table", t, re.I)), tuple(texts)))
    return tuple(found)


def words(text: str) -> list[str]:
    """Words, quoted things, signs and white space; together they are the text."""
    return _WORD.findall(text)


def mutated(rng: Random, text: str, others: Sequence[str]) -> str:
    """The text with up to three changes."""
    for _ in range(rng.choice((0, 1, 1, 1, 1, 2, 3))):
        text = _change(rng, text, others)
    return text


def _change(rng: Random, text: str, others: Sequence[str]) -> str:
    parts = words(text) or [" "]
    at = rng.randrange(len(parts))
    match rng.randrange(12):
        case 0:
            del parts[at]
        case 1:
            parts.insert(at, parts[at])
        case 2:
            other = rng.randrange(len(parts))
            parts[at], parts[other] = parts[other], parts[at]
        case 3:
            parts[at] = rng.choice(words(rng.choice(others)) or ["x"])
        case 4:
            parts.insert(at, f" {rng.choice(_KEYWORDS)} ")
        case 5:
            end = min(len(parts), at + rng.randint(1, 8))
            parts[at:end] = []
        case 6:
            given = words(rng.choice(others)) or ["x"]
            start = rng.randrange(len(given))
            parts[at:at] = [" ", *given[start : start + rng.randint(1, 12)], " "]
        case 7:
            known = [i for i, p in enumerate(parts) if p.lower() in _TYPE_WORDS]
            parts[rng.choice(known) if known else at] = rng.choice((*TYPES, *WRONG_TYPES))
        case 8:
            constants = [i for i, p in enumerate(parts) if p.isdigit() or p.startswith("'")]
            parts[rng.choice(constants) if constants else at] = rng.choice(
                (*LITERALS[rng.choice(list(LITERALS))], *WRONG)
            )
        case 9:
            calls = [i for i, p in enumerate(parts[:-1]) if p.isidentifier() and parts[i + 1] == "("]
            parts[rng.choice(calls) if calls else at] = rng.choice(NAMES)
        case 10:
            position = rng.randint(0, len(text))
            return text[:position] + rng.choice(_CHARACTERS) + text[position + rng.randint(0, 1) :]
        case _:
            identifiers = [i for i, p in enumerate(parts) if p.isidentifier()]
            if len(identifiers) > 1:
                parts[rng.choice(identifiers)] = parts[rng.choice(identifiers)]
    return "".join(parts)


_TYPE_WORDS = frozenset("boolean int bigint double decimal string binary date timestamp".split())
