"""`belvedere dev hbase`: a real HBase on this machine, for trying out views over HBase tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from belvedere.cli import exits, output

if TYPE_CHECKING:
    from belvedere.backend.hbase.local.cluster import LocalHBase

_directory = click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="BELVEDERE_HBASE",
    help="Where its data, configuration and logs are [env: BELVEDERE_HBASE; default: hbase-dev in the cache].",
)
_json = click.option("--json", "as_json", is_flag=True, help="JSON for programs.")


@click.group(short_help="A real HBase on this machine.")
def hbase() -> None:
    """A real HBase: ZooKeeper, master, region servers and the Thrift gateway, as processes on free ports.

    Its jars are fetched by Maven once. It listens on 127.0.0.1 only, and runs until `down`.
    """


@hbase.command()
@_directory
@click.option("--region-servers", type=click.IntRange(1, 8), help="How many [default: as before, else 2].")
@click.option("--timeout", type=float, default=180.0, show_default=True, help="Seconds that the start may take.")
@_json
def up(directory: Path | None, region_servers: int | None, timeout: float, as_json: bool) -> None:
    """Start what does not run, and wait until all of it answers."""
    cluster = _cluster(directory, region_servers)
    if not as_json:
        click.echo(f"starting in {cluster.directory}")
    cluster.start(timeout)
    _show(cluster, None, as_json)
    cluster.disown()


@hbase.command()
@_directory
@_json
def down(directory: Path | None, as_json: bool) -> None:
    """Stop all of it. Its data stays in the directory."""
    cluster = _cluster(directory)
    stopped = list(cluster.pids())
    cluster.stop()
    if as_json:
        output.emit_json({"stopped": stopped})
    else:
        click.echo(f"stopped {', '.join(stopped)}" if stopped else f"no HBase runs in {cluster.directory}")


@hbase.command()
@_directory
@_json
@click.pass_context
def status(ctx: click.Context, directory: Path | None, as_json: bool) -> None:
    """Which of its processes run, where they answer; exit code 4 if something does not."""
    cluster = _cluster(directory)
    lacking = cluster.answers()
    _show(cluster, lacking, as_json)
    if lacking is not None:
        ctx.exit(exits.NOT_YET)


@hbase.command()
@_directory
@click.option("--zookeeper", default="", help="Quorum of another HBase, HOST:PORT[,HOST:PORT…].")
@_json
def peers(directory: Path | None, zookeeper: str, as_json: bool) -> None:
    """Replication peers, those of pools among them, and what of its log HBase keeps for each."""
    from belvedere.backend.hbase.admin import MARK
    from belvedere.backend.hbase.client import connect_hbase

    client = connect_hbase(zookeeper or _cluster(directory).zookeeper, timeout=10.0)
    try:
        kept = client.admin.logs_kept()
        found: list[dict[str, Any]] = [
            {
                "peer": peer.id,
                "pool": peer.configuration.get(MARK),
                "enabled": peer.enabled,
                "serial": peer.serial,
                "tables": sorted(str(table) for table in peer.tables),
                "log_files": kept[peer.id].files if peer.id in kept else None,
                "lag_ms": kept[peer.id].lag_ms if peer.id in kept else None,
            }
            for peer in client.admin.peers()
        ]
    finally:
        client.close()
    if as_json:
        output.emit_json({"peers": found})
        return
    for one in found:
        state = "enabled" if one["enabled"] else "DISABLED: its log is kept until it is enabled or removed"
        whose = f"pool {one['pool']}" if one["pool"] else "not of a pool"
        waiting = "nothing known" if one["lag_ms"] is None else f"{one['log_files']} files, {one['lag_ms']:,} ms behind"
        click.echo(f"{one['peer']}  {whose}  {state}  {waiting}  {', '.join(one['tables']) or 'all tables'}")
    if not found:
        click.echo("no replication peers")


def _cluster(directory: Path | None, region_servers: int | None = None) -> LocalHBase:
    from belvedere.backend.hbase.local.cluster import LocalHBase
    from belvedere.local.java import cache_directory

    return LocalHBase(cache_directory("hbase-dev") if directory is None else directory, region_servers=region_servers)


def _show(cluster: LocalHBase, lacking: str | None, as_json: bool) -> None:
    host, port = cluster.thrift
    pids = cluster.pids()
    found: dict[str, Any] = {
        "directory": str(cluster.directory),
        "zookeeper": cluster.zookeeper,
        "thrift": f"{host}:{port}",
        "processes": pids,
        "answers": lacking is None,
    }
    if as_json:
        output.emit_json(found if lacking is None else {**found, "lacking": lacking})
        return
    if lacking is not None:
        click.echo(f"not ready  {lacking}")
    if pids:
        click.echo(f"zookeeper  {cluster.zookeeper}")
        click.echo(f'thrift     {host}:{port}    happybase.Connection("{host}", {port})')
        click.echo(f"processes  {', '.join(f'{name} {pid}' for name, pid in pids.items())}")
    click.echo(f"logs       {cluster.directory}")
