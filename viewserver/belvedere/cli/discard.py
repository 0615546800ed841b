"""`belvedere discard`: what a pool leaves behind in HBase, and in ZooKeeper, goes with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from belvedere.cli import output
from belvedere.cli.roles import zookeeper_tls

_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.command(short_help="Remove what a pool has in HBase, for ever.")
@click.argument("url")
@click.option("--pool", envvar="BELVEDERE_POOL", default="default", show_default=True, help="Name of the pool.")
@click.option(
    "--zookeeper",
    envvar="BELVEDERE_ZOOKEEPER",
    help="Hosts of the ZooKeeper of the pool itself: its record there is removed as well, so that a pool of this name "
    "can begin anew [env: BELVEDERE_ZOOKEEPER].",
)
@click.option("--zookeeper-credentials", envvar="BELVEDERE_ZOOKEEPER_CREDENTIALS", type=_FILE, help="As of members.")
@click.option(
    "--zookeeper-tls-authority", envvar="BELVEDERE_ZOOKEEPER_TLS_AUTHORITY", type=_FILE, help="As of members."
)
@click.option(
    "--zookeeper-tls-certificate", envvar="BELVEDERE_ZOOKEEPER_TLS_CERTIFICATE", type=_FILE, help="As of members."
)
@click.option("--zookeeper-tls-key", envvar="BELVEDERE_ZOOKEEPER_TLS_KEY", type=_FILE, help="As of members.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
def discard(url: str, pool: str, zookeeper: str | None, yes: bool, as_json: bool, **given: Any) -> None:
    """Remove the replication peer of a pool that runs no more, and its namespace with all views and state.

    URL is that of its store, hbase://zk1,zk2:2181/namespace. Tables of users stay as they are. Without this HBase keeps
    its log for the pool until its disks are full. With --zookeeper it is refused while members of the pool run.
    """
    from belvedere.backend import opening

    if not yes:
        click.confirm(f"remove everything that the pool {pool!r} has at {url}?", abort=True)
    if zookeeper is None:
        found = opening.discard(url, pool)
    else:
        from belvedere.cluster.coordination.remains import PoolRemains
        from belvedere.cluster.roles.run import read_credentials

        opening.shared_url(url)
        parts = [given[f"zookeeper_tls_{part}"] for part in ("authority", "certificate", "key")]
        credentials = read_credentials(given["zookeeper_credentials"])
        with PoolRemains(zookeeper, pool, credentials, zookeeper_tls(*parts)) as remains:
            remains.refuse_members()
            found = opening.discard(url, pool)
            # last: until it is gone, the same command can be given again
            if remains.remove():
                found = " and ".join(filter(None, (found, "the record of the pool in ZooKeeper")))
    if as_json:
        output.emit_json({"removed": found})
    else:
        click.echo(f"removed {found}" if found else f"the pool {pool!r} has nothing at {url}")
