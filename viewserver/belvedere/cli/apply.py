"""`belvedere apply`: tables and views from manifests (YAML) or from a SQL script."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from belvedere.cli import context, output, progress
from belvedere.cli.sql import run_script
from belvedere.sql.manifest import parse_manifests
from belvedere.sql.statements import CreateTable

if TYPE_CHECKING:
    from belvedere.cli.context import Connected
    from belvedere.embedded.database import Database


def is_sql(name: str, text: str) -> bool:
    """A script rather than manifests: by the file's name, or by how the text begins."""
    suffix = Path(name).suffix.lower()
    if suffix in (".sql", ".yaml", ".yml", ".json"):
        return suffix == ".sql"
    return "apiVersion" not in text


def read_text(file: str) -> str:
    """The text of a file, or of standard input for `-`."""
    return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")


@click.command(short_help="Create or change tables and views from a file.")
@click.option("-f", "--file", "files", multiple=True, required=True, metavar="FILE", help="YAML or .sql; - for stdin.")
@context.common
@click.pass_context
def apply(ctx: click.Context, files: tuple[str, ...]) -> None:
    """Make the tables and views of FILE exist as described; the database is created if it is not there.

    Applying the same manifests again changes nothing. A view whose query changed is rebuilt with everything that
    depends on it, and swapped in one step. A SQL script is run statement by statement.
    """
    settings = context.settings(ctx)
    texts = [(file, read_text(file)) for file in files]
    with settings.writer(create=True) as db:
        for file, text in texts:
            if is_sql(file, text):
                run_script(db, text, settings)
                continue
            with progress.of_builds(db, quiet=settings.json):
                changes = apply_manifests(db, text)
            for change in changes:
                if settings.json:
                    output.emit_json(change)
                else:
                    click.echo("{kind} {name}: {action}".format_map(change))


def apply_manifests(db: Database | Connected, text: str) -> list[dict[str, str]]:
    """Apply every document; what became of each."""
    from belvedere.gateway.client.database import HttpDatabase

    if isinstance(db, HttpDatabase):
        return [{name: one[name] for name in ("kind", "name", "action")} for one in db.apply(text)["documents"]]
    before = db.catalog
    db.apply_manifest(text)
    changes = []
    for manifest in parse_manifests(text, lambda: db.catalog):
        table, name = isinstance(manifest.content, CreateTable), manifest.name
        known, now = before.find(name), db.catalog.find(name)
        action = "created" if known is None else "unchanged" if known == now else "changed"
        changes.append({"kind": "table" if table else "view", "name": name, "action": action})
    return changes
