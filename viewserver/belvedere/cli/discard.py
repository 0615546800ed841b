"""`belvedere discard`: what a pool leaves behind in HBase goes with it."""

from __future__ import annotations

import click

from belvedere.cli import output


@click.command(short_help="Remove what a pool has in HBase, for ever.")
@click.argument("url")
@click.option("--pool", envvar="BELVEDERE_POOL", default="default", show_default=True, help="Name of the pool.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
def discard(url: str, pool: str, yes: bool, as_json: bool) -> None:
    """Remove the replication peer of a pool that runs no more, and its namespace with all views and state.

    URL is that of its store, hbase://zk1,zk2:2181/namespace. Tables of users stay as they are. Without this HBase keeps
    its log for the pool until its disks are full.
    """
    from belvedere.backend import opening

    if not yes:
        click.confirm(f"remove everything that the pool {pool!r} has at {url}?", abort=True)
    found = opening.discard(url, pool)
    if as_json:
        output.emit_json({"removed": found})
    else:
        click.echo(f"removed {found}" if found else f"the pool {pool!r} has nothing at {url}")
