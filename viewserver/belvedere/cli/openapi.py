"""`belvedere openapi`: the description of the HTTP API."""

from __future__ import annotations

import click


@click.command(short_help="Print the OpenAPI document of the HTTP API.")
@click.option("--page", is_flag=True, help="The reference page that is made from it, in Markdown.")
def openapi(page: bool) -> None:
    """Print the OpenAPI document that `serve` and `gateway` answer with at /v1/openapi.json."""
    from belvedere.gateway import openapi as document
    from belvedere.gateway import reference
    from belvedere.gateway.routes import ENDPOINTS

    text = reference.page(document.document(ENDPOINTS)) if page else document.text(ENDPOINTS)
    click.echo(text, nl=False)
