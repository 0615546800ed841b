"""The SQL prompt: history, completion of keywords and names, several lines until a semicolon."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from belvedere.cli import context, output, script
from belvedere.cli.sql import run_at_prompt
from belvedere.sql import functions

if TYPE_CHECKING:
    from belvedere.cli.context import AnyDatabase
    from belvedere.sql.catalog import Catalog, TableDef, ViewDef

KEYWORDS = """
    ADD ALL ALTER AND AS AVG BETWEEN BIGINT BINARY BOOLEAN BY CASE CAST COALESCE COLUMN COUNT CREATE CROSS DATE
    DECIMAL DELETE DESCRIBE DISTINCT DOUBLE DROP ELSE END EXISTS EXPLAIN EXTRACT FALSE FILTER FROM FULL GROUP
    HAVING IF IN INNER INSERT INT INTERVAL INTO IS JOIN KEY LEFT LIKE MATERIALIZED MAX MIN NOT NULL ON OR OUTER
    PRIMARY REPLACE RIGHT SELECT SHOW STRING SUM TABLE TABLES THEN TIMESTAMP TRUE UNION VALUES VIEW VIEWS WHEN
    WHERE WITH
""".split()

HELP = """\
statements end with a semicolon and may span lines
\\d          tables and views          \\d NAME    columns of a table or view
\\status     epoch, sizes, backlog     \\help      this text
\\quit       leave (also Ctrl-D)"""

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*$")


class WordCompleter(Completer):
    """Completes keywords, names of tables and views, and their columns."""

    def __init__(self, catalog: Callable[[], Catalog]):
        self.catalog = catalog

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        found = WORD.search(document.text_before_cursor)
        if found is None:
            return
        prefix = found.group().lower()
        seen: set[str] = set()
        for word, kind in self.words():
            if word.lower().startswith(prefix) and word.lower() not in seen:
                seen.add(word.lower())
                yield Completion(word, start_position=-len(prefix), display_meta=kind)

    def words(self) -> Iterable[tuple[str, str]]:
        """Everything that can be completed: names first, since they are harder to remember than keywords."""
        catalog = self.catalog()
        for table in catalog.tables.values():
            yield table.name, "table"
        for view in catalog.views.values():
            yield view.name, "view"
        relations: list[TableDef | ViewDef] = [*catalog.tables.values(), *catalog.views.values()]
        for relation in relations:
            for column in relation.columns:
                yield column.name, f"{relation.name} {column.type}"
        for word in KEYWORDS:
            yield word, "keyword"
        for word in functions.names():
            yield word, "function"


def history_file() -> Path:
    """Where the prompt keeps its history: the user's state directory."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "belvedere" / "sql_history"


def history() -> History:
    """The history on disk, or in memory where that is not possible."""
    path = history_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


def finished(text: str) -> bool:
    """Whether Enter runs the text: a backslash command, nothing, or complete statements."""
    stripped = text.strip()
    if not stripped or stripped.startswith("\\"):
        return True
    pieces = script.split(text)
    return not pieces or pieces[-1].complete


class Prompt:
    """Reads statements until the user leaves."""

    def __init__(self, db: AnyDatabase, settings: context.GlobalOptions):
        self.db = db
        self.settings = settings

    def run(self) -> None:
        click.echo(f"{self.settings.url or self.settings.path}: statements end with ;  \\help for help")
        session: PromptSession[str] = PromptSession(
            history=history(),
            completer=WordCompleter(lambda: self.db.catalog),
            auto_suggest=AutoSuggestFromHistory(),
            lexer=PygmentsLexer(SqlLexer),
            multiline=True,
            key_bindings=self.keys(),
            prompt_continuation="      ...> ",
            complete_while_typing=False,
        )
        while True:
            try:
                text = session.prompt("belvedere> ")
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if text.strip().startswith("\\"):
                if not self.command(text.strip()):
                    return
            else:
                run_at_prompt(self.db, text, self.settings)

    def keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            if finished(event.current_buffer.text):
                event.current_buffer.validate_and_handle()
            else:
                event.current_buffer.insert_text("\n")

        return keys

    def command(self, text: str) -> bool:
        """A backslash command; False to leave."""
        name, _, argument = text.rstrip(";").partition(" ")
        match name:
            case "\\q" | "\\quit":
                return False
            case "\\d" if argument:
                run_at_prompt(self.db, f"DESCRIBE {argument}", self.settings)
            case "\\d":
                run_at_prompt(self.db, "SHOW TABLES; SHOW VIEWS", self.settings)
            case "\\status":
                output.emit_record(self.db.status(), as_json=self.settings.json)
            case "\\h" | "\\help" | "\\?":
                click.echo(HELP)
            case _:
                click.echo(f"unknown command {name}; \\help lists them", err=True)
        return True
