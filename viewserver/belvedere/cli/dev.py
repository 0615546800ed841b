"""`belvedere dev`: what people need to try things out on their own machine."""

from __future__ import annotations

import importlib

import click

# name -> module of this folder, loaded when called; the command has the name of the entry
COMMANDS = {"hbase": "dev_hbase"}


class DevCommands(click.Group):
    """A group that loads its commands lazily."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"belvedere.cli.{COMMANDS[cmd_name]}"), cmd_name)
        return command


@click.group(cls=DevCommands, short_help="Servers of others on this machine, to try things out.")
def dev() -> None:
    """Servers of others on this machine, to try things out."""
