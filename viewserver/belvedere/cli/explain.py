"""`belvedere explain`: how views are maintained, as text, JSON or a picture."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from belvedere.cli import apply, context, script

if TYPE_CHECKING:
    from belvedere.cli.context import AnyDatabase


@click.command(short_help="Show how a view is maintained: text, JSON or SVG.")
@click.argument("views", nargs=-1)
@click.option("-f", "--file", metavar="FILE", help="Explain the views of a manifest or script; creates nothing.")
@click.option("--format", "format", type=click.Choice(["text", "json", "svg"]), default="text", show_default=True)
@click.option("-o", "--output", "target", type=click.Path(path_type=Path), help="Write to this file.")
@context.common
@click.pass_context
def explain(ctx: click.Context, views: tuple[str, ...], file: str | None, format: str, target: Path | None) -> None:
    """Print the maintenance plan of VIEWS (default: all): operators, zones, and the state they keep."""
    settings = context.settings(ctx)
    if settings.json:
        format = "json"
    if file is not None:
        text = _explain_file(file, views, format)
    else:
        with settings.reader() as db:
            text = plans(db, views, format)
    if target is None:
        click.echo(text)
    else:
        target.write_text(text)
        click.echo(f"{target}: {len(text):,} characters", err=True)


def plans(db: AnyDatabase, views: tuple[str, ...], format: str) -> str:
    """The plans of some views, or of all: texts below each other, a JSON document a line, or one picture."""
    names = views or tuple(db.catalog.views)
    if format == "svg" and len(names) != 1:
        raise click.UsageError(f"a picture shows one view; name one of {', '.join(db.catalog.views) or '(none yet)'}")
    texts = []
    for name in names:
        quoted = name.replace("`", "``")
        text = str(db.execute(f"EXPLAIN FORMAT {format} `{quoted}`")).rstrip()
        texts.append(json.dumps(json.loads(text)) if format == "json" else text)
    return "\n".join(texts) if format == "json" else "\n\n".join(texts)


def _explain_file(file: str, views: tuple[str, ...], format: str) -> str:
    """Plans of a file's views, made in a database that is thrown away."""
    import belvedere
    from belvedere.sql.manifest import parse_manifests
    from belvedere.sql.statements import CreateTable, CreateView
    from belvedere.sql.text import create_text

    text = apply.read_text(file)
    with tempfile.TemporaryDirectory(prefix="belvedere-explain-") as directory:
        db = belvedere.open(Path(directory) / "explain.bv")
        try:
            if apply.is_sql(file, text):
                for piece in script.split(text):
                    db.execute(piece.sql)
            else:
                for manifest in parse_manifests(text, lambda: db.catalog):  # of any pool, larger than this machine
                    match manifest.content:
                        case CreateTable(table=definition) | CreateView(view=definition):
                            db.execute(create_text(definition))
            return plans(db, views, format)
        finally:
            db.close()
