"""`belvedere local`: ZooKeeper and all roles of a cluster on this machine, for people to play with."""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from belvedere.cli import output

if TYPE_CHECKING:
    from belvedere.cluster.process.local import LocalCluster

FIRST_STATUS_SECONDS = 30.0


@click.command(short_help="A whole cluster on this machine.")
@click.option("--viewservers", type=click.IntRange(1, 64), default=3, show_default=True, help="How many view servers.")
@click.option("--spares", type=click.IntRange(0, 8), default=0, show_default=True, help="View servers that stand by.")
@click.option("--distributors", type=click.IntRange(1, 16), default=2, show_default=True, help="How many distributors.")
@click.option("--coordinators", type=click.IntRange(1, 5), default=1, show_default=True, help="How many coordinators.")
@click.option(
    "--store",
    envvar="BELVEDERE_STORE",
    default="",
    help="URL of the backend, hbase://zk1,zk2:2181/namespace [env: BELVEDERE_STORE; default: a store of its own].",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="BELVEDERE_LOCAL",
    help="Where everything is kept [env: BELVEDERE_LOCAL; default: a temporary directory].",
)
@click.option("--session-timeout", type=float, default=4.0, show_default=True, help="Seconds.")
@click.option("--epoch-ms", type=int, default=20, show_default=True, help="Shortest epoch.")
@click.option("--retention", type=float, default=60.0, show_default=True, help="Seconds that epochs stay readable.")
@click.option("--restart/--no-restart", default=True, show_default=True, help="Start again what dies.")
def local(directory: Path | None, restart: bool, **settings: Any) -> None:
    """Start ZooKeeper, a store, coordinators, distributors and view servers as processes of their own.

    With `--store hbase://…` the pool follows tables of that HBase and keeps its views there; everything else is there,
    too, or with `?state=served` in a store of its own.

    Ctrl-C stops them. In another terminal: `belvedere scale 5 --directory DIR`, `belvedere --url URL status`, or kill
    one of the processes and watch.
    """
    from belvedere.cluster.process.local import ClusterShape, LocalCluster
    from belvedere.engine.warm import compile_kernels

    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    compile_kernels()  # once, not in all view servers at the same time
    with tempfile.TemporaryDirectory(prefix="belvedere-", ignore_cleanup_errors=True) as made:
        place = directory or Path(made)
        click.echo(f"starting in {place}")
        with LocalCluster(place, ClusterShape(restart=restart, **settings)) as cluster:
            click.echo(f"url   {cluster.url}")
            click.echo(f'try   belvedere.connect("{cluster.url}")')
            click.echo(f"      belvedere scale {cluster.shape.viewservers + 1} --directory {place}")
            click.echo("stop  Ctrl-C")
            try:
                _watch(cluster)
            except KeyboardInterrupt:
                click.echo("\nstopping")


def _watch(cluster: LocalCluster) -> None:
    """One line that is written over and over (on a terminal), or a line whenever something changed."""
    from belvedere.cluster.client.inquiry import status_of

    last = ""
    while True:
        line = _line(status_of(cluster.coordinators, 2.0))
        if sys.stdout.isatty():
            click.echo(f"\r\x1b[K{line}", nl=False)
        elif line.split(" · lag")[0] != last:
            last = line.split(" · lag")[0]
            click.echo(line)
        time.sleep(1.0)


def _line(status: dict[str, Any]) -> str:
    if "error" in status:
        return f"waiting: {status['error']}"
    members = status.get("members", [])
    servers = [m for m in members if m["role"] == "viewserver"]
    text = (
        f"{len(servers)} view servers · generation {status['generation']} · backlog {status['backlog_rows']:,} rows"
        f" · lag {status['lag_ms']:,} ms · epoch {status['epoch']}"
    )
    return f"{text} · STALLED: {status['stalled']}" if status.get("stalled") else text


@click.command(short_help="Change the number of view servers of `belvedere local`.")
@click.argument("viewservers", type=click.IntRange(1, 64))
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    envvar="BELVEDERE_LOCAL",
    required=True,
    help="The directory of the cluster [env: BELVEDERE_LOCAL].",
)
@click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
def scale(viewservers: int, directory: Path, as_json: bool) -> None:
    """Ask the `belvedere local` of a directory for another number of view servers."""
    from belvedere.cluster.process.local import control

    answer = control(directory, "scale", viewservers=viewservers)
    if as_json:
        output.emit_json(answer)
        return
    for child in answer["children"]:
        click.echo(f"{child['name']:<16} {'leaving' if child['leaving'] else child['pid']}")
