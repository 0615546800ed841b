"""`BaseTable`: a table that users write, and whose changes views follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from belvedere_operator.api.condition import Condition
from belvedere_operator.api.fields import Rule, prop

SQL_NAME = {"minLength": 1, "maxLength": 255}
COLUMN_NAME = {"minLength": 1, "maxLength": 128}
MOST_COLUMNS = 240
"""Rules that compare every column with every other one stay within what the API server lets a rule cost."""
RETAIN, DELETE = "Retain", "Delete"


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A column of the table."""

    name: str = prop("The column's name in SQL; upper and lower case are the same.", required=True, schema=COLUMN_NAME)
    type: str = prop(
        "Its type as in SQL: boolean, int, bigint, double, decimal(p,s), string, binary, date or timestamp.",
        required=True,
        minLength=1,
        maxLength=64,
        rules=(
            Rule(
                "self.lowerAscii() == oldSelf.lowerAscii()",
                "the type of a column cannot change; add another column, or create another table",
            ),
        ),
    )
    nullable: bool | None = prop("false: NULL is refused. Default: true; key columns are never NULL.")
    cell: str | None = prop(
        "With hbase: the cell that the column is, FAMILY:QUALIFIER. Columns of the key have none.",
        minLength=1,
        maxLength=512,
    )
    encoding: str | None = prop(
        "With hbase: how values stand in cells and row keys.",
        enum=[
            "text", "raw", "short", "int", "long", "millis", "micros", "double", "float", "boolean", "decimal",
            "json", "avro", "ordered",
        ],
    )  # fmt: skip
    width: int | None = prop(
        "With hbase, of a column of the key that is text or raw: how many bytes of the row key it has.",
        minimum=1,
        maximum=32767,
    )
    member: str | None = prop(
        "With hbase: which member of a cell in JSON or Avro the column is, as in customer.address.city.",
        minLength=1,
        maxLength=512,
    )
    schema: str | None = prop("With hbase: the schema of a cell in Avro, as JSON.", minLength=2, maxLength=65536)


@dataclass(frozen=True, slots=True)
class RowKeySpec:
    """What stands in row keys beside the columns of the key."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("!has(self.skip) || !has(self.skipTo)", "what is skipped has a length or an end: skip or skipTo"),
    )
    skip: int | None = prop(
        "How many bytes come before the columns, such as a salt or a hash of the key.", minimum=1, maximum=32767
    )
    skip_to: str | None = prop("The columns begin behind the first of this text.", minLength=1, maxLength=64)
    delimiter: str | None = prop("What stands between two columns.", minLength=1, maxLength=64)


@dataclass(frozen=True, slots=True)
class HBaseTableSpec:
    """Where the rows are, if they are in HBase."""

    table: str = prop(
        "The table's name there, with its namespace unless that is the default one.",
        required=True,
        minLength=1,
        maxLength=255,
    )
    set_replication_scope: bool | None = prop(
        "Whether Belvedere may set REPLICATION_SCOPE of its families to 1, where it is not; nothing else of the table "
        "is ever changed."
    )
    row_key: RowKeySpec | None = prop("What stands in row keys beside the columns of the key.")


@dataclass(frozen=True, slots=True)
class BaseTableSpec:
    """What the table is."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.key.all(k, self.columns.exists(c, c.name.lowerAscii() == k.lowerAscii()))",
            "key names a column that is not in columns",
        ),
        Rule(
            "has(self.name) == has(oldSelf.name) && (!has(self.name) || self.name == oldSelf.name)",
            "a table cannot be renamed; create another one, copy its rows, and delete this one",
        ),
        Rule("self.key == oldSelf.key", "the key of a table cannot change; create another table"),
        Rule("self.pool == oldSelf.pool", "a table cannot move to another pool; create it there under its own name"),
        Rule(
            "has(self.hbase) == has(oldSelf.hbase) && (!has(self.hbase) || self.hbase.table == oldSelf.hbase.table)",
            "where the rows of a table are cannot change; create another table",
        ),
        Rule("self.ties == oldSelf.ties", "how ties are settled cannot change; create another table"),
        Rule(
            "oldSelf.columns.all(o, self.columns.exists(c, c.name.lowerAscii() == o.name.lowerAscii()))",
            "a column cannot be taken away; views that do not name it are not slower for it",
        ),
    )
    columns: tuple[ColumnSpec, ...] = prop(
        "The columns. More can be added later; they are NULL in rows that are there.",
        required=True,
        minItems=1,
        maxItems=MOST_COLUMNS,
        schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    key: tuple[str, ...] = prop(
        "The columns of the primary key, in their order.",
        required=True,
        minItems=1,
        maxItems=32,
        items_minLength=1,
        items_maxLength=128,
        schema={"x-kubernetes-list-type": "atomic"},
    )
    name: str | None = prop(
        "The table's name in SQL, if it is not that of the resource (with '_' in place of '-').", schema=SQL_NAME
    )
    pool: str = prop("The ViewPool that the table lives in, in the same namespace.", default="default", maxLength=253)
    ties: str = prop(
        "Which of two puts of a cell with one timestamp wins: the later one (lineage), or the one with the greater "
        "value (value), for rows that several masters write.",
        default="lineage",
        enum=["lineage", "value"],
    )
    hbase: HBaseTableSpec | None = prop(
        "The table is one of HBase, which the pool follows. Pools that keep their base tables themselves refuse it."
    )
    reclaim_policy: str = prop(
        "What happens to the rows when the resource is deleted: Retain keeps them in the pool, where a table of the "
        "same shape finds them again; Delete drops the table.",
        default=RETAIN,
        enum=[RETAIN, DELETE],
    )


@dataclass(frozen=True, slots=True)
class BaseTableStatus:
    """What was found."""

    observed_generation: int | None = prop("The generation that the status is about.", minimum=0)
    conditions: tuple[Condition, ...] = prop(
        "Accepted: the pool has the table as it is described. Ready: it takes rows.",
        default=(),
        schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    sql_name: str | None = prop("The table's name in SQL.")
    dependants: tuple[str, ...] = prop("Names in SQL of the views that read it.", default=())
    rows: int | None = prop("Rows, about, where the pool counts them.")
    applied: str | None = prop("Digest of the description that the pool has.")
