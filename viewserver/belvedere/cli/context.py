"""What every command shares: where the database or the cluster is, how to open it, and whether to speak JSON."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from belvedere import errors

if TYPE_CHECKING:
    from belvedere.cluster.client.database import ClusterDatabase
    from belvedere.embedded.database import Database
    from belvedere.embedded.reader import Reader
    from belvedere.gateway.client.database import HttpDatabase

    Connected: TypeAlias = ClusterDatabase | HttpDatabase
    AnyDatabase: TypeAlias = Database | Reader | Connected

F = TypeVar("F", bound=Callable[..., Any])

CERTIFICATES = {
    "certificate": "PEM file of a certificate, for belvedere+tls://… and https://…",
    "key": "PEM file of its key.",
    "authority": "PEM file of the authority that signed the members' certificates.",
}
"""The files that TLS needs, and what they are; the roles have the same options and variables."""
SERVER_NAME = "BELVEDERE_TLS_SERVER_NAME"
"""The name that certificates of a pool's members carry; the roles have the same option."""
BEARER, BEARER_FILE = "BELVEDERE_TOKEN", "BELVEDERE_BEARER_FILE"
"""Who asks: the token itself, or a file with it."""


@dataclass
class GlobalOptions:
    """The global options, and the SQL text being executed (for the caret when it is refused)."""

    path: Path
    url: str | None = None
    """A cluster or a gateway instead of a directory."""
    certificates: dict[str, Path] = field(default_factory=dict)
    """For TLS, as far as given; what is not may be in the environment. The name of servers is among them."""
    bearer: Path | None = None
    """A file with the token that says who asks."""
    json: bool = False
    statement: str | None = None

    def _must_exist(self) -> None:
        if not self.path.exists():
            raise errors.StorageError(
                f"no database at {self.path}; name one with --db or BELVEDERE_DB, "
                "or make one with `belvedere apply -f FILE` or `belvedere sql`"
            )

    @contextmanager
    def cluster(self, url: str) -> Iterator[Connected]:
        import belvedere

        with belvedere.connect(url, **self._files(url), **self._bearer(url)) as db:
            yield db

    def _files(self, url: str) -> dict[str, Any]:
        """What comes from the environment is for whoever uses TLS; a plain URL is not refused because of it."""
        with_tls = "+tls:" in url or url.startswith("https:")
        known = {name: os.environ.get(_variable(name)) for name in CERTIFICATES} if with_tls else {}
        if "+tls:" in url and SERVER_NAME in os.environ:
            known["server_name"] = os.environ[SERVER_NAME]
        return known | self.certificates

    def access(self) -> dict[str, str]:
        """Files for the URL, for processes that connect by themselves."""
        return {} if self.url is None else {name: str(file) for name, file in self._files(self.url).items()}

    def _bearer(self, url: str) -> dict[str, Any]:
        """As with certificates: what is in the environment is for URLs that it means something to."""
        found: Path | str | None = self.bearer
        if found is None and url.startswith(("http:", "https:")):
            file = os.environ.get(BEARER_FILE)
            found = Path(file) if file else os.environ.get(BEARER) or None
        return {} if found is None else {"bearer": found}

    @contextmanager
    def reader(self) -> Iterator[Reader | Connected]:
        """The database for reading; works beside a writer in another process."""
        import belvedere  # the engine is heavy: loaded by the commands that need it

        if self.url is not None:
            with self.cluster(self.url) as cluster:
                yield cluster
            return
        self._must_exist()
        db = belvedere.open(self.path, read_only=True)
        try:
            yield db
        finally:
            db.close()

    @contextmanager
    def writer(self, *, create: bool = False) -> Iterator[Database | Connected]:
        """The database for writing; a directory is refused while another process writes it."""
        import belvedere

        if self.url is not None:
            with self.cluster(self.url) as cluster:
                yield cluster
            return
        if not create:
            self._must_exist()
        db = belvedere.open(self.path)
        try:
            yield db
        finally:
            db.close()


def settings(ctx: click.Context | None = None) -> GlobalOptions:
    """The settings of the running command."""
    found: GlobalOptions = (ctx or click.get_current_context()).find_root().obj
    return found


def _set_path(ctx: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is not None:
        settings(ctx).path, settings(ctx).url = value, None


def _set_url(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        settings(ctx).url = value


def _set_certificate(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    if value is not None:
        settings(ctx).certificates[str(parameter.name).removeprefix("tls_")] = value


def _set_bearer(ctx: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is not None:
        settings(ctx).bearer = value


def _set_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        settings(ctx).json = True


def _variable(part: str) -> str:
    return f"BELVEDERE_TLS_{part.upper()}"


def certificates(**how: Any) -> Callable[[F], F]:
    """The options --tls-certificate, --tls-key, --tls-authority and --tls-server-name."""
    file = click.Path(path_type=Path, dir_okay=False, exists=True)

    def accept(command: F) -> F:
        named = "The name in the certificates of members, if not the hosts in their addresses, for belvedere+tls://…"
        command = click.option("--tls-server-name", help=f"{named} [env: {SERVER_NAME}]", **how)(command)
        for part, what in reversed(CERTIFICATES.items()):
            option = click.option(f"--tls-{part}", type=file, help=f"{what} [env: {_variable(part)}]", **how)
            command = option(command)
        return command

    return accept


def bearer_file(**how: Any) -> Callable[[F], F]:
    """The option --bearer-file."""
    file = click.Path(path_type=Path, dir_okay=False, exists=True)
    told = f"File with the token that says who asks, for https://… [env: {BEARER_FILE}; the token itself: {BEARER}]"
    return click.option("--bearer-file", type=file, help=told, **how)


def database_path(command: F) -> F:
    """Also accept the global --db, --url, --tls-… and --bearer-file after the name of the command."""
    directory = click.option(
        "--db", type=click.Path(path_type=Path), expose_value=False, callback=_set_path, help="The database directory."
    )
    cluster = click.option(
        "--url", expose_value=False, callback=_set_url, help="A cluster or a gateway instead: belvedere://…, https://…"
    )
    bearer = bearer_file(expose_value=False, callback=_set_bearer)
    return directory(cluster(certificates(expose_value=False, callback=_set_certificate)(bearer(command))))


def common(command: F) -> F:
    """Also accept the global --db, --url, --tls-… and --json after the name of the command."""
    as_json = click.option("--json", is_flag=True, expose_value=False, callback=_set_json, help="JSON for programs.")
    return database_path(as_json(command))
