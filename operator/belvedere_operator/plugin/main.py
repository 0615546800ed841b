"""The commands of `kubectl belvedere`. Run as `python -m belvedere_operator.plugin`, or by the script
`kubectl-belvedere` on the PATH, which is how kubectl finds it."""

from __future__ import annotations

import json
import sys
import urllib.parse
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from belvedere_operator.names import sql_name
from belvedere_operator.plugin import report as reports
from belvedere_operator.plugin import requests
from belvedere_operator.plugin.cluster import Kubectl, KubectlFailed, columns
from belvedere_operator.plugin.reaching import GatewayRefused, Reached, reached

DIFFERENT = 3
"""Exit code: done, but not whole, as in `belvedere verify`."""


@dataclass(frozen=True, slots=True)
class Session:
    kubectl: Kubectl
    pool: str
    url: str
    token: str
    account: str

    def gateway(self, pool: str = "") -> AbstractContextManager[Reached]:
        return reached(self.kubectl, pool or self.pool, url=self.url, token=self.token, account=self.account)

    def view(self, name: str) -> tuple[str, str]:
        """Name in SQL and pool of a view or table, by the name of its resource or in SQL."""
        for plural in ("materializedviews", "basetables"):
            for item in self.kubectl.items(plural):
                if name in (item["metadata"]["name"], sql_name(item)):
                    return sql_name(item), str(item["spec"].get("pool") or "default")
        return name, self.pool


class _Group(click.Group):
    """What the cluster or the gateway says is an error message, not a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (KubectlFailed, GatewayRefused) as error:
            click.echo(f"error: {error}", err=True)
            ctx.exit(1)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-n", "--namespace", default="", help="Namespace; default: that of the context.")
@click.option("--context", default="", help="Context of the kubeconfig.")
@click.option("--kubeconfig", default="", help="The kubeconfig.")
@click.option("--pool", default="default", show_default=True, help="Pool, where a command does not know it by a view.")
@click.option("--url", default="", help="A gateway that is reached directly, not through the API server.")
@click.option("--token", default="", envvar="BELVEDERE_TOKEN", help="Who asks the gateway. [env: BELVEDERE_TOKEN]")
@click.option("--account", default="", help="A service account in whose name the gateway is asked.")
@click.pass_context
def cli(ctx: click.Context, /, namespace: str, context: str, kubeconfig: str, **rest: Any) -> None:
    """Pools, tables and views of Belvedere in a cluster."""
    ctx.obj = Session(Kubectl(context, namespace, kubeconfig), **rest)


@cli.command()
@click.pass_obj
def status(session: Session) -> None:
    """Pools and views, and what is wrong with them."""
    kubectl = session.kubectl
    pools, views, tables = (kubectl.items(plural) for plural in ("viewpools", "materializedviews", "basetables"))
    if not pools and not views and not tables:
        click.echo(f"no pools, tables or views in namespace {kubectl.current_namespace()}")
        return
    rows: list[list[object]] = [["POOL", "READY", "SERVERS", "NEEDED", "TABLES", "VIEWS", "LAG"]]
    for item in pools:
        told = item.get("status", {})
        servers = f"{told.get('readyReplicas', 0)}/{item['spec'].get('replicas', '?')}"
        needed = told.get("scaling", {}).get("desired", "-")
        figures = [told.get("tables", 0), told.get("views", 0), told.get("lag", "-")]
        rows.append([item["metadata"]["name"], _condition(item, "Ready"), servers, needed, *figures])
    click.echo(columns(rows))
    rows = [["VIEW", "POOL", "READY", "FRESH", "LAG", "ROWS", "SIZE"]]
    for item in views:
        told = item.get("status", {})
        figures = [told.get("lag", "-"), told.get("rows", "-"), told.get("size", "-")]
        states = [_condition(item, "Ready"), _condition(item, "Fresh")]
        rows.append([item["metadata"]["name"], item["spec"].get("pool", "default"), *states, *figures])
    click.echo("\n" + columns(rows))
    problems = [text for item in [*pools, *tables, *views] for text in _problems(item)]
    if problems:
        click.echo("\n" + "\n".join(problems))
        sys.exit(DIFFERENT)


def _condition(item: dict[str, Any], type: str) -> str:
    return next((c["status"] for c in item.get("status", {}).get("conditions", ()) if c["type"] == type), "-")


_GOOD = {"Ready": "True", "Accepted": "True", "Built": "True", "Fresh": "True", "Complete": "True", "Verified": "True"}
_GOOD |= {"Stalled": "False", "StoreBound": "False", "HotKey": "False"}


def _problems(item: dict[str, Any]) -> list[str]:
    name = f"{item['kind']} {item['metadata']['name']}"
    found = item.get("status", {}).get("conditions", ())
    wrong = [one for one in found if one["type"] in _GOOD and one["status"] != _GOOD[one["type"]]]
    return [f"{name}: {one['type']}={one['status']} ({one['reason']}): {one['message']}" for one in wrong]


@cli.command()
@click.pass_obj
def lag(session: Session) -> None:
    """How far the views of the pool are behind, now."""
    with session.gateway() as gateway:
        told = gateway.json("GET", "/v1/lag")
    click.echo(f"lag {told['lag_ms'] / 1000:.3f} s, {told['backlog_rows']} rows wait, epoch {told['epoch']}")
    for problem in told.get("problems") or ():
        click.echo(problem)


@cli.command()
@click.argument("view", required=False)
@click.option("-f", "--file", type=click.Path(exists=True, dir_okay=False), help="Explain what a file describes.")
@click.option("--format", "format_", type=click.Choice(["text", "json", "svg"]), default="text", show_default=True)
@click.pass_obj
def explain(session: Session, view: str | None, file: str | None, format_: str) -> None:
    """How VIEW is maintained, and what it costs; or what the views of a file would cost."""
    if (view is None) == (file is None):
        raise click.UsageError("give a view, or a file with -f")
    accept = {"text": "text/plain", "json": "application/json", "svg": "image/svg+xml"}[format_]
    if file is not None:
        text = Path(file).read_bytes()
        kind = "application/sql" if file.endswith(".sql") else "application/yaml"
        with session.gateway() as gateway:
            click.echo(gateway.ask("POST", "/v1/explain", None, text, accept, kind).decode())
        return
    assert view is not None
    name, pool = session.view(view)
    with session.gateway(pool) as gateway:
        click.echo(gateway.ask("GET", f"/v1/relations/{_quoted(name)}/plan", accept=accept).decode())


@cli.command()
@click.argument("view")
@click.argument("key", nargs=-1, required=True)
@click.pass_obj
def get(session: Session, view: str, key: tuple[str, ...]) -> None:
    """The row of VIEW with this KEY: a value for each column of the key."""
    name, pool = session.view(view)
    values = [_value(text) for text in key]
    with session.gateway(pool) as gateway:
        query = {"key": json.dumps(values if len(values) > 1 else values[0])}
        click.echo(json.dumps(gateway.json("GET", f"/v1/relations/{_quoted(name)}/row", query), ensure_ascii=False))


@cli.command()
@click.argument("view", required=False)
@click.option("--engine", type=click.Choice(["duckdb", "spark"]), help="By a Job of the operator, with this engine.")
@click.option("--job", is_flag=True, help="By a Job of the operator, with the engine that the view asks for.")
@click.option("--no-wait", is_flag=True, help="Ask for the Job, and do not wait for its end.")
@click.pass_obj
def verify(session: Session, view: str | None, engine: str | None, job: bool, no_wait: bool) -> None:
    """Recompute VIEW (default: all of the pool) and compare every row. Exit code 3 on a difference.

    A gateway does it with DuckDB, while the command waits. A Job does it for as long as spec.verify.deadline allows,
    and what it finds is in the status of the view.
    """
    if engine is not None or job or no_wait:
        if view is None:
            raise click.UsageError("a Job verifies one view; name it")
        sys.exit(requests.verify(session.kubectl, view, engine or "", wait=not no_wait, say=click.echo))
    name, pool = session.view(view) if view else ("", session.pool)
    body = json.dumps({"views": [name] if view else None}).encode()
    with session.gateway(pool) as gateway:
        lines = gateway.ask("POST", "/v1/verify", None, body, "application/x-ndjson").decode().splitlines()
    good = False
    for line in lines:
        event = json.loads(line)
        if event["event"] == "report":
            told = event["report"]
            result = "equal" if told["ok"] else told.get("problem") or f"{told.get('differences')} differences"
            click.echo(f"{told['view']}: {told['rows']} rows at epoch {told['epoch']}: {result}")
        elif event["event"] == "done":
            good = bool(event["ok"])
        elif event["event"] not in ("progress",):
            raise GatewayRefused(str(event.get("detail") or event))
    sys.exit(0 if good else DIFFERENT)


@cli.command()
@click.argument("view")
@click.option("--dry-run", is_flag=True, help="Only tell how many rows would be replaced.")
@click.option("--all", "everything", is_flag=True, help="Make the view anew, without looking.")
@click.option("--no-wait", is_flag=True, help="Ask for the Job, and do not wait for its end.")
@click.pass_obj
def repair(session: Session, view: str, dry_run: bool, everything: bool, no_wait: bool) -> None:
    """Put right what is wrong with VIEW, by a Job of the operator. Exit code 3 when something is left."""
    if dry_run and everything:
        raise click.UsageError("--dry-run looks for what is wrong, and --all does not look; keep one of them")
    how = "dry-run" if dry_run else "all" if everything else "repair"
    sys.exit(requests.repair(session.kubectl, view, how, wait=not no_wait, say=click.echo))


@cli.command()
@click.argument("view")
@click.pass_obj
def quarantine(session: Session, view: str) -> None:
    """Rows of VIEW that cannot be computed, and why. Exit code 3 when there are any."""
    name, pool = session.view(view)
    with session.gateway(pool) as gateway:
        told = gateway.json("GET", f"/v1/relations/{_quoted(name)}/quarantine")
    for row in told["rows"]:
        click.echo(json.dumps(row, ensure_ascii=False))
    click.echo(f"{len(told['rows'])} rows in quarantine", err=True)
    sys.exit(DIFFERENT if told["rows"] else 0)


@cli.command()
@click.argument("replicas", type=click.IntRange(1, 1000))
@click.pass_obj
def scale(session: Session, replicas: int) -> None:
    """Change the number of view servers of the pool."""
    found = session.kubectl.get("viewpools.belvedere.dev", session.pool)
    scaling = found["spec"].get("autoscaling")
    if scaling and scaling.get("mode", "active") == "active" and scaling.get("scaler", "hpa") != "none":
        range_ = f"{scaling['minReplicas']} to {scaling['maxReplicas']}"
        text = f"pool {session.pool} has an autoscaler ({range_}), which would undo it"
        raise KubectlFailed(f"{text}; change spec.autoscaling, or set its scaler to none")
    click.echo(
        session.kubectl.run("scale", f"viewpools.belvedere.dev/{session.pool}", f"--replicas={replicas}").strip()
    )


@cli.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default="belvedere-report.tar.gz",
    show_default=True,
)
@click.pass_obj
def report(session: Session, output: Path) -> None:
    """An archive for whoever helps: resources, objects, events, logs, figures; no secrets."""

    def figures(pool: str) -> Any:
        with session.gateway(pool) as gateway:
            return gateway.json("GET", "/v1/status")

    count = reports.write(output, reports.contents(session.kubectl, figures))
    click.echo(
        f"{output}: {count} files of namespace {session.kubectl.current_namespace()}; look at them before you send them"
    )


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def _value(text: str) -> Any:
    """A number, true, false or null as such; everything else is a text."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(found, (dict, list, str)) else found


def main() -> None:
    cli(prog_name="kubectl belvedere")
