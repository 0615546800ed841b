"""`belvedere inspect hbase`: a manifest for a table that is there, guessed from its rows."""

from __future__ import annotations

import click


@click.group(short_help="Propose a manifest for a table of HBase.")
def inspect() -> None:
    """Look into another system's table, and propose how to follow it."""


@inspect.command(short_help="A table of HBase.")
@click.argument("table")
@click.option(
    "--store", "url", required=True, envvar="BELVEDERE_STORE",
    help="The HBase, as pools name it: hbase://zk1,zk2:2181/namespace [env: BELVEDERE_STORE].",
)  # fmt: skip
@click.option("--rows", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="How many are sampled.")
def hbase(table: str, url: str, rows: int) -> None:
    """Read some rows of TABLE (with its namespace, unless that is the default one), and print a manifest of a base
    table that reads all of them.

    It is a proposal: bytes do not tell what they mean. Its comments have examples, and what stands in the way.
    """
    from belvedere.backend.opening import inspect_hbase

    click.echo(inspect_hbase(url, table, rows), nl=False)
