"""`belvedere gateway`: a pool over HTTP; stateless, so any number of them."""

from __future__ import annotations

from typing import Any

import click

from belvedere.cli import context
from belvedere.cli.serve import run_server, server_options


@click.command(short_help="Serve a pool over HTTP.")
@server_options
@click.option("--store", default="", help="served://HOST:PORT, if no member of the pool has the role store.")
@context.database_path
@click.pass_context
def gateway(ctx: click.Context, /, store: str, **settings: Any) -> None:
    """Serve the pool at --url over HTTP, until SIGTERM. Any number of gateways may serve one pool.

    A gateway whose pool is gone says so at /readyz, and goes on when it is back. Without --tokens nobody is
    authenticated, and only this machine is listened to.
    """
    import belvedere
    from belvedere.cluster.process.lean import do_without_pandas
    from belvedere.gateway.databases import PoolDatabase

    do_without_pandas()
    found = context.settings(ctx)
    if found.url is None:
        raise click.UsageError("gateway is for a pool: give its coordinators with --url belvedere://HOST:PORT[,…]")
    db = belvedere.connect(found.url, store=store, **found._files(found.url))
    try:
        run_server(PoolDatabase(db), settings)
    finally:
        db.close()
