"""`belvedere coordinator | distributor | viewserver | store`: one process of a pool."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from belvedere.rpc.addresses import Certificates

F = TypeVar("F", bound=Callable[..., Any])


def _option(name: str, variable: str, **settings: Any) -> Callable[[F], F]:
    help_text = f"{settings.pop('help')} [env: {variable}]"
    return click.option(name, envvar=variable, help=help_text, **settings)


def pool_options(command: F) -> F:
    """What every role is told."""
    path = click.Path(path_type=Path, dir_okay=False, exists=True)
    for option in reversed(
        [
            _option("--zookeeper", "BELVEDERE_ZOOKEEPER", required=True, help="Hosts: HOST:PORT[,HOST:PORT…][/PATH]."),
            _option(
                "--zookeeper-credentials",
                "BELVEDERE_ZOOKEEPER_CREDENTIALS",
                type=path,
                help="File with USER:PASSWORD; with it only this user may see or change the pool's nodes.",
            ),
            _option(
                "--zookeeper-tls-authority",
                "BELVEDERE_ZOOKEEPER_TLS_AUTHORITY",
                type=path,
                help="PEM file of who signed ZooKeeper's certificates: speak TLS with it.",
            ),
            _option(
                "--zookeeper-tls-certificate",
                "BELVEDERE_ZOOKEEPER_TLS_CERTIFICATE",
                type=path,
                help="PEM file of a certificate, for a ZooKeeper that asks for one.",
            ),
            _option(
                "--zookeeper-tls-key", "BELVEDERE_ZOOKEEPER_TLS_KEY", type=path, help="PEM file of the key of that one."
            ),
            _option("--pool", "BELVEDERE_POOL", default="default", show_default=True, help="Name of the pool."),
            _option("--name", "BELVEDERE_NAME", default="", help="Name of this process, for people."),
            _option("--host", "BELVEDERE_HOST", default="127.0.0.1", show_default=True, help="Address to listen on."),
            _option("--port", "BELVEDERE_PORT", type=int, default=0, help="Port; 0 chooses one."),
            _option("--advertise", "BELVEDERE_ADVERTISE", default="", help="Host by which others reach this one."),
            _option("--http-port", "BELVEDERE_HTTP_PORT", type=int, help="Port of /metrics, /healthz and /readyz."),
            _option(
                "--directory",
                "BELVEDERE_DIRECTORY",
                type=click.Path(path_type=Path, file_okay=False),
                help="The store's data; in other roles where to spill.",
            ),
            _option("--tls-certificate", "BELVEDERE_TLS_CERTIFICATE", type=path, help="PEM file of this process."),
            _option("--tls-key", "BELVEDERE_TLS_KEY", type=path, help="PEM file of its key."),
            _option("--tls-authority", "BELVEDERE_TLS_AUTHORITY", type=path, help="PEM file of the authority of all."),
            _option(
                "--tls-server-name",
                "BELVEDERE_TLS_SERVER_NAME",
                help="The name that certificates of others carry, if not the hosts in their addresses.",
            ),
            _option(
                "--session-timeout",
                "BELVEDERE_SESSION_TIMEOUT",
                type=float,
                default=4.0,
                show_default=True,
                help="Seconds without a sign of life after which a member is taken for dead.",
            ),
            _option(
                "--leave-within",
                "BELVEDERE_LEAVE_WITHIN",
                type=float,
                default=7.0,
                show_default=True,
                help="Seconds from SIGTERM until it leaves without being released; it ends 2.7 s later at most.",
            ),
            _option(
                "--memory-limit",
                "BELVEDERE_MEMORY_LIMIT",
                default="1GiB",
                show_default=True,
                help="For rows on their way; more spill to disk.",
            ),
            _option(
                "--log-form",
                "BELVEDERE_LOG_FORM",
                type=click.Choice(["text", "json"]),
                help="Lines for people or for programs; by default text on a terminal, else JSON.",
            ),
            _option(
                "--log-level",
                "BELVEDERE_LOG_LEVEL",
                type=click.Choice(["debug", "info", "warning", "error"]),
                default="info",
                show_default=True,
                help="The least that is written; debug has a line for each epoch.",
            ),
            click.option("--end-with-parent", is_flag=True, hidden=True),
        ]
    ):
        command = option(command)
    return command


def _store_url(command: F) -> F:
    text = "URL of the backend (hbase://zk1,zk2:2181/namespace), if not the pool's member with role store."
    return _option("--store", "BELVEDERE_STORE", default="", help=text)(command)


def bytes_of(text: str) -> int:
    """1GiB, 512MiB, 64KiB or a plain number of bytes."""
    units = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "B": 1, "": 1}
    number = text.rstrip("KMGiB")
    try:
        return int(float(number) * units[text[len(number) :]])
    except (ValueError, KeyError):
        raise click.BadParameter(f"{text!r}: a number of bytes, with KiB, MiB or GiB if you like") from None


def _run(role: str, **settings: Any) -> None:
    from belvedere.cluster.process.lean import do_without_pandas
    from belvedere.cluster.process.options import ProcessOptions

    do_without_pandas()
    from belvedere.cluster.roles.run import run
    from belvedere.protocol.messages import Role
    from belvedere.rpc.addresses import Certificates

    files = [settings.pop(f"tls_{part}") for part in ("certificate", "key", "authority")]
    server_name = settings.pop("tls_server_name")
    if any(files) and not all(files):
        raise click.UsageError("TLS needs all three of --tls-certificate, --tls-key and --tls-authority")
    if server_name and not all(files):
        raise click.UsageError("--tls-server-name is checked in certificates: give those of TLS as well")
    tls = Certificates(files[0], files[1], files[2], server_name) if all(files) else None
    settings["zookeeper_tls"] = zookeeper_tls(
        *[settings.pop(f"zookeeper_tls_{part}") for part in ("authority", "certificate", "key")]
    )
    limit = bytes_of(settings.pop("memory_limit"))
    if settings.pop("spare", False):
        from belvedere.cluster.process.spares import wait_for_name
        from belvedere.cluster.roles.run import load

        load(Role(role))
        settings["name"] = wait_for_name()
    if settings.pop("end_with_parent"):
        from belvedere.cluster.process.local import end_with_parent

        end_with_parent()
    options = ProcessOptions(Role(role), tls=tls, memory_limit=limit, **settings)
    code = run(options)
    # Everything is closed and durable. What the interpreter would do now (ending threads of libraries) takes a second
    # in which others wait for the end of this process.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def zookeeper_tls(authority: Path | None, certificate: Path | None, key: Path | None) -> Certificates | None:
    if authority is None:
        if certificate is not None or key is not None:
            raise click.UsageError("TLS with ZooKeeper needs --zookeeper-tls-authority: who signed its certificates")
        return None
    if (certificate is None) != (key is None):
        raise click.UsageError("a certificate for ZooKeeper needs its key: give both --zookeeper-tls-… or neither")
    from belvedere.rpc.addresses import Certificates

    return Certificates(certificate, key, authority)


@click.command(short_help="A coordinator of a pool.")
@pool_options
@_store_url
@click.option(
    "--epoch-ms", envvar="BELVEDERE_EPOCH_MS", type=int, default=20, show_default=True, help="Shortest epoch."
)
@click.option(
    "--retention",
    envvar="BELVEDERE_RETENTION",
    type=float,
    default=60.0,
    help="Seconds that epochs stay readable; at least the session timeout and 5.",
)
def coordinator(**settings: Any) -> None:
    """Plan epochs, move buckets, commit. One of a pool's coordinators leads, the others wait."""
    _run("coordinator", **settings)


@click.command(short_help="A distributor of a pool.")
@pool_options
@_store_url
@_option("--sink-port", "BELVEDERE_SINK_PORT", type=int, default=0, help="Port for the log of HBase; 0 chooses one.")
@_option(
    "--sink-advertise",
    "BELVEDERE_SINK_ADVERTISE",
    default="",
    help="Host by which region servers of HBase reach this one, if not the advertised one.",
)
def distributor(**settings: Any) -> None:
    """Take changes from the sources, make them durable, send them to the view servers."""
    _run("distributor", **settings)


@click.command(short_help="A view server of a pool.")
@pool_options
@_store_url
@click.option("--spare", is_flag=True, hidden=True)
def viewserver(**settings: Any) -> None:
    """Own a share of the keys: keep their state, write the rows of views."""
    _run("viewserver", **settings)


@click.command(short_help="The store of a pool.")
@pool_options
@_option(
    "--backlog-limit",
    "BELVEDERE_BACKLOG_LIMIT",
    help="Changes that views do not have yet: with more, writes wait; 0: no limit. [default: 16GiB, or half the disk]",
)
def store(backlog_limit: str | None, **settings: Any) -> None:
    """Keep base tables, INPUT, state and views of a small cluster in a directory (LMDB)."""
    _run("store", backlog_limit=None if backlog_limit is None else bytes_of(backlog_limit), **settings)
