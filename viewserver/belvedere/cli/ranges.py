"""`belvedere ranges`: the key ranges of a base table of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from belvedere.cli import context, output

if TYPE_CHECKING:
    from belvedere.cluster.client.ranges import Ranges

ACTIONS = ("split", "merge", "move")


@click.command(short_help="Key ranges of a base table of a cluster.")
@click.argument("table")
@click.argument("action", type=click.Choice(ACTIONS), required=False)
@click.argument("words", nargs=-1, metavar="[KEY … | SOURCE SOURCE | SOURCE NODE]")
@click.option("--source", help="The range that `split` without a key is about, if there are several.")
@context.common
@click.pass_context
def ranges(ctx: click.Context, table: str, action: str | None, words: tuple[str, ...], source: str | None) -> None:
    """List the key ranges of TABLE, or change them.

    \b
    ranges TABLE split              in the middle of its rows
    ranges TABLE split KEY …        at a key
    ranges TABLE merge SOURCE SOURCE
    ranges TABLE move SOURCE NODE   another of the store's threads pushes it

    Each range is a log of its own, pushed in parallel to others. A write is atomic within one range.
    """
    settings = context.settings(ctx)
    if settings.url is None:
        raise click.UsageError("tables of an embedded database have one range; name a cluster with --url")
    if settings.url.startswith(("http:", "https:")):
        raise click.UsageError(
            "key ranges are looked after by coordinators: name them with --url belvedere://HOST:PORT"
        )
    if action in ("merge", "move") and len(words) != 2:
        raise click.UsageError(
            f"{action} takes two words: {'two sources' if action == 'merge' else 'a source and a node'}"
        )
    if source is not None and (action != "split" or words):
        raise click.UsageError("--source is for `split` without a key")
    from belvedere.cluster.client.database import ClusterDatabase
    from belvedere.cluster.client.ranges import Ranges

    with settings.writer() as db:
        assert isinstance(db, ClusterDatabase)
        found = Ranges(db, table)
        _change(found, action, words, source)
        rows = [[one.source, one.start, one.stop, one.node] for one in found.listed()]
    if settings.json:
        output.emit_json([dict(zip(("source", "from", "to", "node"), row, strict=True)) for row in rows])
        return
    shown = [[name, _key(start), _key(stop), node] for name, start, stop, node in rows]
    output.console().print(output.table_of(("source", "from", "to", "node"), shown))


def _change(found: Ranges, action: str | None, words: tuple[str, ...], source: str | None) -> None:
    from belvedere.cli import values

    if action == "split":
        columns = [found.table.columns[at] for at in found.table.key_positions]
        try:
            key = [values.parse(word, column.type) for word, column in zip(words, columns, strict=False)]
        except values.Broken as error:
            raise click.UsageError(f"key of table {found.table.name!r}: {error}") from None
        found.split([*key, *words[len(columns) :]], source)
    elif action == "merge":
        found.merge(*words)
    elif action == "move":
        found.move(*words)


def _key(values: list[Any] | str | None) -> str:
    if values is None:
        return "…"
    return values if isinstance(values, str) else ", ".join(str(output.jsonable(value)) for value in values)
