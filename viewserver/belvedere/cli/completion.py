"""`belvedere completion`: the script that makes a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "fish", "zsh")


@click.command(short_help="Print the completion script for a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    bash:  eval "$(belvedere completion bash)"   in ~/.bashrc
    zsh:   eval "$(belvedere completion zsh)"    in ~/.zshrc
    fish:  belvedere completion fish > ~/.config/fish/completions/belvedere.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, f"click knows no completion for {shell}"
    click.echo(kind(ctx.find_root().command, {}, "belvedere", "_BELVEDERE_COMPLETE").source())
