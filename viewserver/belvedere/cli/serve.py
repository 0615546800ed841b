"""`belvedere serve`: the embedded database over HTTP; its process is this one."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from belvedere.cli import context

if TYPE_CHECKING:
    from belvedere.gateway.auth import Authenticator, Authorizer

F = TypeVar("F", bound=Callable[..., Any])


def _option(name: str, variable: str, **settings: Any) -> Callable[[F], F]:
    help_text = f"{settings.pop('help')} [env: {variable}]"
    return click.option(name, envvar=variable, help=help_text, **settings)


def server_options(command: F) -> F:
    """What every server of the API is told."""
    file = click.Path(path_type=Path, dir_okay=False, exists=True)
    for option in reversed(
        [
            _option("--host", "BELVEDERE_HTTP_HOST", default="127.0.0.1", show_default=True, help="Where to listen."),
            _option("--port", "BELVEDERE_HTTP_PORT", type=int, default=8080, show_default=True, help="0 chooses one."),
            _option("--tokens", "BELVEDERE_HTTP_TOKENS", type=file, help="YAML file of bearer tokens and rights."),
            _option(
                "--authentication",
                "BELVEDERE_AUTHENTICATION",
                type=click.Choice(["tokens", "kubernetes"]),
                default="tokens",
                show_default=True,
                help="Who says who asks and what they may do: the file of --tokens, or the cluster of this pod.",
            ),
            _option("--tls-server-certificate", "BELVEDERE_HTTP_CERTIFICATE", type=file, help="PEM file: speak HTTPS."),
            _option("--tls-server-key", "BELVEDERE_HTTP_KEY", type=file, help="PEM file of its key."),
            _option(
                "--tls-clients", "BELVEDERE_HTTP_CLIENTS", type=file, help="PEM file: who signs clients' certificates."
            ),
            click.option("--tls-clients-optional", is_flag=True, help="Clients may do without a certificate."),
            _option(
                "--audit",
                "BELVEDERE_HTTP_AUDIT",
                type=click.Path(path_type=Path, dir_okay=False),
                help="File of the audit log.",
            ),
            click.option(
                "--cors-origin", "cors_origins", multiple=True, help="An origin whose pages may ask; repeatable."
            ),
            click.option(
                "--max-body", default=64, show_default=True, type=click.IntRange(1, 1024), help="MiB of a body."
            ),
            click.option(
                "--max-requests", default=256, show_default=True, type=click.IntRange(1), help="At work at a time."
            ),
            click.option(
                "--max-requests-per-caller", default=32, show_default=True, type=click.IntRange(1), help="Of these."
            ),
            click.option(
                "--notice-seconds", default=0.0, show_default=True, help="From SIGTERM until connections are refused."
            ),
            click.option(
                "--drain-seconds", default=20.0, show_default=True, help="For requests that are at work then."
            ),
        ]
    ):
        command = option(command)
    return command


def run_server(database: Any, settings: dict[str, Any]) -> None:
    """Until it is stopped."""
    from belvedere.gateway.limits import Limits
    from belvedere.gateway.server import GatewayServer, ServerOptions, TlsPaths
    from belvedere.gateway.token_file import TokenFile

    log = logging.getLogger("belvedere.gateway")
    certificate, key, clients = (settings[f"tls_{n}"] for n in ("server_certificate", "server_key", "clients"))
    if (certificate is None) != (key is None):
        raise click.UsageError("--tls-server-certificate and --tls-server-key belong together")
    if clients is not None and certificate is None:
        raise click.UsageError("--tls-clients needs --tls-server-certificate")
    tokens = settings["tokens"]
    authenticator: Authenticator | None = None if tokens is None else TokenFile(tokens, log.warning)
    authorizer: Authorizer | None = None
    if settings["authentication"] == "kubernetes":
        if tokens is not None:
            raise click.UsageError("--tokens and --authentication kubernetes contradict each other")
        from belvedere.gateway.kubernetes import AccessReviews, ApiServer, TokenReviews

        cluster = ApiServer.of_pod()
        authenticator, authorizer = TokenReviews(cluster.ask), AccessReviews(cluster.ask, cluster.namespace)
    options = ServerOptions(
        host=settings["host"],
        port=settings["port"],
        tls=None if certificate is None else TlsPaths(certificate, key, clients, settings["tls_clients_optional"]),
        notice_seconds=settings["notice_seconds"],
        drain_seconds=settings["drain_seconds"],
        audit=settings["audit"],
        cors_origins=tuple(settings["cors_origins"]),
        limits=Limits(
            body_bytes=settings["max_body"] << 20,
            requests=settings["max_requests"],
            requests_of_caller=settings["max_requests_per_caller"],
        ),
    )
    server = GatewayServer(database, options, authenticator, authorizer, say=log.warning)

    def started(url: str) -> None:
        click.echo(f"serving {database.kind} database at {url}")
        sys.stdout.flush()

    server.run(started)


@click.command(short_help="Serve a database over HTTP.")
@server_options
@click.option("--read-only", is_flag=True, help="Read beside the process that writes the database.")
@context.database_path
@click.pass_context
def serve(ctx: click.Context, /, read_only: bool, **settings: Any) -> None:
    """Serve the database in the directory --db over HTTP, until SIGTERM.

    Every language can read and write it then: docs/howto/http.md. Without --tokens nobody is authenticated, and only
    this machine is listened to.
    """
    import belvedere
    from belvedere.gateway.databases import EmbeddedDatabase

    found = context.settings(ctx)
    if found.url is not None:
        raise click.UsageError("serve is for a database directory (--db); for a pool: belvedere gateway --url …")
    db: Any = belvedere.open(found.path, read_only=True) if read_only else belvedere.open(found.path)
    try:
        run_server(EmbeddedDatabase(db, read_only=read_only), settings)
    finally:
        db.close()
