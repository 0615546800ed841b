"""Texts that are understood: together they use every part of every kind of node that the grammar knows."""

from __future__ import annotations

ACCEPTED = (
    "SELECT a, b AS c, t.s FROM t WHERE a BETWEEN 1 AND 9 AND NOT f OR x > 1.5 AND b <> 2",
    "SELECT ALL a, t.* FROM t AS t (a, b, s, p, q, d, x, ts, f, bin) WHERE f",
    "SELECT * EXCEPT (b, s) FROM t",
    "SELECT b, count(*), count(DISTINCT a), sum(a) FILTER (WHERE f) FROM t GROUP BY b, f HAVING max(a) > 1",
    "SELECT b, min(a) FROM t GROUP BY ALL",
    "SELECT t.a, u.c FROM t LEFT OUTER JOIN u ON t.a = u.a JOIN w ON w.k = t.a, w AS z WHERE z.k = t.a",
    "SELECT a, v FROM t JOIN u USING (a) JOIN w ON k = n",
    "SELECT a FROM t LEFT SEMI JOIN u ON t.a = u.a AND t.b = u.n",
    "SELECT t.a FROM t JOIN (u JOIN w ON u.n = w.k) ON t.a = w.k",
    "SELECT q.n FROM (SELECT n, count(*) AS m FROM u GROUP BY n) AS q (n, z) JOIN w ON k = z",
    "SELECT DISTINCT a FROM t UNION ALL SELECT n FROM u UNION SELECT k FROM w",
    "WITH q (z, y) AS (SELECT a, b FROM t), r AS (SELECT z FROM q) SELECT z FROM r",
    "WITH q AS (SELECT a FROM t) (SELECT a FROM q) UNION ALL SELECT k FROM w",
    "SELECT a FROM (WITH i AS (SELECT a FROM t) SELECT a FROM i) AS o",
    "WITH q AS (SELECT a FROM t) (SELECT a FROM q)",
    "WITH q AS (SELECT a FROM t) (SELECT a FROM q) LIMIT 1",
    "SELECT q.a FROM ((SELECT a FROM t) AS q JOIN w ON q.a = w.k)",
    "FROM t SELECT a WHERE f",
    "SELECT s LIKE 'a!%' ESCAPE '!', s NOT LIKE 'b', s IN ('a', 'b'), s NOT IN ('c'), s IS NULL, f IS NOT TRUE FROM t",
    "SELECT a <=> b, a IS DISTINCT FROM b, a IS NOT DISTINCT FROM b, a = 1, a < 2, a <= 3, a >= 4 FROM t",
    "SELECT a + 1, a - 2, a * 3, a / 4, a % 5, a DIV 6, -a, +a, (a + 1) * 2, s || 'x' || 'y', 'a' 'b' FROM t",
    "SELECT cast(a AS decimal(4, 2)), try_cast(s AS int), s::double, 5L, 1.5BD, DATE '2020-01-01', cast(a AS double "
    "precision) FROM t",
    "SELECT substring(s, 2, 1), substr(s FROM 2 FOR 3), trim(BOTH 'x' FROM s), trim(s), position('a' IN s) FROM t",
    "SELECT extract(year FROM d), d + INTERVAL '1' DAY, d - INTERVAL 2 MONTH, ts + INTERVAL '3 hours' FROM t",
    "SELECT CASE WHEN f THEN 1 ELSE 2 END, CASE a WHEN 1 THEN 'x' WHEN 2 THEN 'y' END, if(f, 1, 2), NULL, FALSE, "
    "X'ab', r'\\n' FROM t",
    "SELECT a FROM t WHERE a IN (SELECT n FROM u) AND EXISTS (SELECT 1 FROM w WHERE k = t.a AND v > 1)",
    "SELECT a FROM t WHERE (a, s) IN (SELECT a, c FROM u) AND a NOT IN (SELECT k FROM w)",
    "SELECT a FROM t WHERE a IN (SELECT * EXCEPT (c, n) FROM u)",
    "SELECT a, b FROM t ORDER BY b DESC NULLS FIRST, 1 LIMIT 3 OFFSET 2",
    "(SELECT a FROM t) ORDER BY a LIMIT 1 OFFSET 1",
    "SELECT a FROM t UNION ALL SELECT k FROM w ORDER BY a LIMIT 1 OFFSET 1",
    "INSERT INTO w VALUES (1, 2), (3, -4)",
    "INSERT INTO w (v, k) VALUES (1, 2)",
    "DELETE FROM w WHERE k = 1",
    "DELETE FROM w WHERE w.k IN (1, 2)",
    "DELETE FROM u WHERE (a, c) IN ((1, 'x'), (2, 'y'))",
)
