"""Random statements over a random schema: every statement of the front end, and queries in all their clauses."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.sql.fuzz.expressions import FAMILIES, LITERALS, TYPES, WRONG_TYPES, Expressions

_SIZES = {"decimal": ("decimal(5,1)", "decimal(12,2)", "decimal(38,18)", "decimal")}


@dataclass
class Relation:
    """A table or view as the generator believes it to be: its columns with their families."""

    name: str
    columns: list[tuple[str, str]]
    key: int = 1


class Statements:
    """A generator with a schema of its own; `setup` are the statements that make it."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.wild = rng.choice((0.0, 0.0, 0.005, 0.03))
        self.tables: list[Relation] = []
        self.views: list[Relation] = []
        self.setup: list[str] = []
        self._count = 0
        for name in ("t1", "t2", "t3"):
            columns = [(f"c{i}", rng.choice(FAMILIES)) for i in range(rng.randint(2, 6))]
            columns.insert(0, ("id", rng.choice(FAMILIES[1:])))
            self.tables.append(Relation(name, columns, rng.choice((1, 1, 2))))
            self.setup.append(self._create_table(self.tables[-1]))
        for table in self.tables:
            self.setup += [self._insert(table, 0.0) for _ in range(3)]

    def next(self) -> str:
        """A statement; what it would create is not remembered until `created`."""
        rng = self.rng
        draw = rng.random()
        if draw < 0.40:
            return self._create_view()
        if draw < 0.58:
            return self._query() + rng.choice(
                ("", "", f" ORDER BY {rng.choice('12')}", " LIMIT 3", " OFFSET 1", " ORDER BY id DESC")
            )
        if draw < 0.68:
            form = rng.choice((*("", "FORMAT JSON ", "FORMAT svg ") * 4, "FORMAT x "))
            return f"EXPLAIN {form}" + rng.choice((self._query(), self._create_view(), self._any_name()))
        if draw < 0.80:
            return self._insert(rng.choice(self.tables), 0.15)
        if draw < 0.86:
            return self._delete()
        if draw < 0.90:
            return self._ddl()
        return self._small() if draw < 0.94 else self._create_view()

    def _fresh(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def _any_name(self) -> str:
        known = [r.name for r in (*self.tables, *self.views)]
        return self.rng.choice([*known, "nothing", "`t1`", "T1", "a.t1", "'t1'", "1"])

    def _type(self, family: str) -> str:
        return self.rng.choice(_SIZES.get(family, (family,)))

    def _create_table(self, table: Relation) -> str:
        columns = [f"{name} {self._type(family)}" for name, family in table.columns]
        key = ", ".join(name for name, _ in table.columns[: table.key])
        return f"CREATE TABLE {table.name} ({', '.join(columns)}, PRIMARY KEY ({key}))"

    def _create_view(self) -> str:
        rng = self.rng
        options = rng.choice(("",) * 30 + (" KEY (id)", " KEY (x0)", " RETENTION '1h'", " RETENTION 'x'"))
        start = rng.choice(("CREATE", "CREATE", "CREATE", "CREATE OR REPLACE"))
        name = self._fresh("v") if rng.random() < 0.9 or not self.views else rng.choice(self.views).name
        return f"{start} MATERIALIZED VIEW {name}{options} AS {self._query()}"

    def _ddl(self) -> str:
        rng = self.rng
        name = self._fresh("n")
        types = TYPES if rng.random() < 0.7 else WRONG_TYPES
        columns = ", ".join(f"c{i} {rng.choice(types)}" for i in range(rng.randint(1, 3)))
        return rng.choice((
            f"CREATE TABLE {name} (id {rng.choice(types)} PRIMARY KEY, {columns})",
            f"CREATE TABLE IF NOT EXISTS {self._any_name()} (id INT, {columns}, PRIMARY KEY (id, c0))",
            f"CREATE TABLE {name} ({columns})",
            f"CREATE TABLE {name} (id INT NOT NULL DEFAULT 3 PRIMARY KEY)",
            f"ALTER TABLE {self._any_name()} ADD COLUMN {self._fresh('n')} {rng.choice(types)}",
            f"ALTER TABLE {self._any_name()} ADD COLUMNS ({columns})",
            f"ALTER TABLE {self._any_name()} RENAME TO x",
            f"CREATE VIEW {name} AS SELECT 1",
        ))  # fmt: skip

    def _small(self) -> str:
        rng = self.rng
        name = self._any_name()
        return rng.choice((
            f"DROP TABLE {name}", f"DROP MATERIALIZED VIEW {name}", f"DROP VIEW IF EXISTS {name}", "SHOW TABLES",
            "SHOW VIEWS",
            f"SHOW CREATE TABLE {name}", f"DESCRIBE {name}", f"DESC TABLE {name}", f"UPDATE {name} SET c0 = 1", "BEGIN",
            f"MERGE INTO {name} USING t2 ON true WHEN MATCHED THEN DELETE", "VALUES (1)", "SET x = 1", "USE db", ";",
            "", "SELECT",
            f"TRUNCATE TABLE {name}", f"CACHE TABLE {name}", "FROM t1", "FROM t1 SELECT *", "SELECT 1; SELECT 2",
            "WITH x", "(",
        ))  # fmt: skip

    def _constant(self, family: str, wild: float) -> str:
        rng = self.rng
        if rng.random() < wild:
            return Expressions(rng, (), 0.2).of(rng.choice(FAMILIES), 1)
        return rng.choice(LITERALS[family])

    def _insert(self, table: Relation, wild: float) -> str:
        rng = self.rng
        columns = (
            table.columns if wild == 0 or rng.random() < 0.7 else rng.sample(table.columns, len(table.columns) - 1)
        )
        rows = []
        for number in range(rng.randint(1, 3)):
            values = [self._constant(family, wild) for _, family in columns]
            if wild == 0:  # rows for the start: valid ones only, so that queries have something to read
                values = [
                    _GOOD[f][(number + len(self.setup) + i) % (3 if i >= table.key else 2)]
                    for i, (_, f) in enumerate(columns)
                ]
            rows.append(f"({', '.join(values)})")
        listed = f" ({', '.join(name for name, _ in columns)})" if wild == 0 or rng.random() < 0.6 else ""
        name = table.name if rng.random() > wild / 2 else self._any_name()
        return f"INSERT INTO {name}{listed} VALUES {', '.join(rows)}"

    def _delete(self) -> str:
        rng = self.rng
        table = rng.choice(self.tables)
        parts = [f"{n} = {self._constant(f, 0.1)}" for n, f in table.columns[: table.key]]
        first, family = table.columns[0]
        where = rng.choice((
            " AND ".join(parts), f"{first} IN ({self._constant(family, 0.1)}, {self._constant(family, 0.1)})",
            Expressions(rng, table.columns, self.wild).of("boolean"),
            f"({first}, c0) IN (({self._constant(family, 0.1)}, 1))",
        ))  # fmt: skip
        return f"DELETE FROM {table.name}" + (f" WHERE {where}" if rng.random() < 0.95 else "")

    # Queries

    def _query(self, depth: int = 2) -> str:
        rng = self.rng
        draw = rng.random()
        if draw < 0.10 and depth > 0:
            word = rng.choice((*("UNION ALL", "UNION", "UNION DISTINCT") * 3, "EXCEPT", "INTERSECT"))
            families = [rng.choice(FAMILIES) for _ in range(rng.randint(1, 3))]
            return f"{self._select(depth - 1, families)} {word} {self._select(depth - 1, families)}"
        if draw < 0.16 and depth > 0:
            return f"WITH q AS ({self._select(depth - 1)}) SELECT * FROM q"
        return self._select(depth)

    def _source(self, alias: str, depth: int) -> tuple[str, list[tuple[str, str]]]:
        rng = self.rng
        known = [*self.tables, *self.tables, *self.views]
        relation = rng.choice(known)
        columns = [(f"{alias}.{name}", family) for name, family in relation.columns]
        if depth > 0 and rng.random() < 0.15:
            families = [family for _, family in relation.columns[:3]]
            names = [(f"{alias}.x{i}", family) for i, family in enumerate(families)]
            return f"({self._select(depth - 1, families)}) {alias}", names
        if rng.random() < 0.01:
            return rng.choice(
                ("range(3) r", "VALUES (1) r", "t1@v1", "t1 TABLESAMPLE (1 ROWS)", "t1 PIVOT (sum(c0) FOR c0 IN (1))")
            ), columns
        return f"{relation.name} {alias}", columns

    def _from(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        rng = self.rng
        text, columns = self._source("a", depth)
        for alias in "bc"[: rng.choice((0, 0, 0, 1, 1, 2))]:
            other, more = self._source(alias, depth)
            kind = rng.choice(
                (
                    *("JOIN", "LEFT JOIN") * 4,
                    "RIGHT JOIN",
                    "FULL JOIN",
                    "LEFT SEMI JOIN",
                    "LEFT ANTI JOIN",
                    "JOIN",
                    "LEFT JOIN",
                    "JOIN",
                    "CROSS JOIN",
                    ",",
                    "NATURAL JOIN",
                )
            )
            pairs = [(x, y) for x, f in columns for y, g in more if f == g] or [(columns[0][0], more[0][0])]
            left, right = rng.choice(pairs)
            draw = rng.random()
            if kind in (",", "CROSS JOIN"):
                on = ""
            elif draw < 0.2:
                on = f" USING ({rng.choice(('id', 'c0', 'x0', 'id, c1'))})"
            elif draw < 0.9:
                on = f" ON {left} {rng.choice(('=', '=', '=', '<=>', '<'))} {right}"
                if rng.random() < 0.3:
                    on += f" AND {Expressions(rng, [*columns, *more], self.wild).of('boolean', 1)}"
            else:
                on = f" ON {Expressions(rng, [*columns, *more], self.wild).of('boolean', 2)}"
            text += f" {kind} {other}{on}"
            if "SEMI" not in kind and "ANTI" not in kind:
                columns = columns + more
        return text, columns

    def _select(self, depth: int, families: list[str] | None = None) -> str:
        rng = self.rng
        text, columns = self._from(depth)
        make = Expressions(rng, columns, self.wild)
        where = ""
        if rng.random() < 0.4:
            where = f" WHERE {make.of('boolean')}"
            if depth > 0 and rng.random() < 0.3:
                where += f" AND {self._subquery(depth - 1, columns)}"
        wanted = families or [rng.choice(FAMILIES) for _ in range(rng.randint(1, 4))]
        distinct = "DISTINCT " if rng.random() < 0.1 else ""
        draw = rng.random()
        if draw < 0.25 and families is None:
            group = [make.of(rng.choice(FAMILIES), 1) for _ in range(rng.randint(0, 2))]
            items = [*group, *(make.aggregate() for _ in range(rng.randint(1, 3)))]
            tail = f" GROUP BY {', '.join(group)}" if group else ""
            if rng.random() < 0.05:
                tail = rng.choice(
                    (
                        " GROUP BY ALL",
                        " GROUP BY ROLLUP (1)",
                        " GROUP BY 1, 9",
                        f" GROUP BY {make.aggregate()}",
                        " GROUP BY x0 WITH CUBE",
                    )
                )
            if rng.random() < 0.2:
                tail += f" HAVING {make.aggregate()} {rng.choice(('>', '='))} {make.any(1)}"
        else:
            items = [make.of(family) for family in wanted]
            tail = ""
        if draw > 0.9 and families is None:
            listed = rng.choice(("*", "a.*", "id, *", "* EXCEPT (id)"))
        else:
            listed = ", ".join(f"{item} AS x{i}" if rng.random() < 0.95 else item for i, item in enumerate(items))
        return f"SELECT {distinct}{listed} FROM {text}{where}{tail}"

    def _subquery(self, depth: int, outer: list[tuple[str, str]]) -> str:
        rng = self.rng
        column, family = rng.choice(outer)
        negated = rng.choice(("", "", "NOT "))
        if rng.random() < 0.5:
            return f"{column} {negated}IN ({self._select(depth, [family])})"
        table = rng.choice(self.tables)
        make = Expressions(rng, [*outer, *((f"z.{n}", f) for n, f in table.columns)], self.wild)
        return f"{negated}EXISTS (SELECT 1 FROM {table.name} z WHERE z.id = {column} AND {make.of('boolean', 1)})"


_GOOD = {
    "boolean": ("true", "false", "null"),
    "int": ("1", "2", "-7"),
    "bigint": ("1", "3000000000", "-7"),
    "double": ("0e0", "1.5e0", "-2e10"),
    "decimal": ("1.5", "-2.0", "0"),
    "string": ("'a'", "'äb'", "'12'"),
    "binary": ("x'61'", "x'ff00'", "x'20'"),
    "date": ("date '2024-02-29'", "date '1999-12-31'", "date '2024-01-01'"),
    "timestamp": ("timestamp '2024-02-29 12:30:00'", "timestamp '1999-12-31'", "timestamp '2024-01-01 00:00:01'"),
}
