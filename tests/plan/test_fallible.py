"""Which expressions can fail: these stay behind the conditions that were written before them."""

from __future__ import annotations

import pytest

from belvedere.sql.registry import fallible
from tests.sql.support import bound


@pytest.mark.parametrize(
    "sql",
    [
        "upper(bin)",
        "cast(bin AS STRING)",
        "lpad(s, a)",
        "rpad(s, 3, s)",
        "repeat(s, a)",
        "s LIKE 'a\\\\x'",
        "s LIKE s",
        "s LIKE 'a!' ESCAPE '!'",
        "a + 1",
        "cast(s AS INT)",
    ],
)
def test_what_can_fail(sql: str) -> None:
    assert fallible(bound(sql))


@pytest.mark.parametrize(
    "sql",
    [
        "upper(s)",
        "cast(a AS STRING)",
        "cast(s AS BINARY)",
        "bin || bin",
        "substring(bin, 1, 2)",
        "s LIKE 'a%'",
        "x + 1",
    ],
)
def test_what_cannot_fail(sql: str) -> None:
    assert not fallible(bound(sql))
