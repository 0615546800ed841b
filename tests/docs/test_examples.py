"""Every example that a page marks as runnable is run, and what it says about its output must be true.

A fence is runnable when `run` follows the language:

* `python run`: executed; `print(…)  # text` states the line that is printed.
* `sql run`: executed statement by statement against a database of the page.
* `console run`: each `$ …` line is executed; the lines below it are its output, and `(exit code N)` its exit code.

`…` in stated output stands for anything, and runs of white space count as one blank. The blocks of a page share a
directory, a database and Python variables, in the order of the page.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(?P<language>\w+)(?P<run> run)?[^\n]*\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
STATED = re.compile(r"^\s*print\(.*\)\s+# (?P<text>.*)$")
EXIT_CODE = re.compile(r"\(exit code (\d+)\)")


@dataclass(frozen=True)
class Block:
    """A runnable fence: its language, its text, and the line where it begins."""

    language: str
    body: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(found["language"], found["body"], text.count("\n", 0, found.start()) + 1)
        for found in FENCE.finditer(text)
        if found["run"]
    ]


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def agrees(stated: str, actual: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in squeezed(stated).split("…"))
    return re.fullmatch(pattern, squeezed(actual)) is not None


def run_python(block: Block, namespace: dict[str, object], where: str) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block.body, where, "exec"), namespace)
    stated = [found["text"] for line in block.body.splitlines() if (found := STATED.match(line))]
    actual = printed.getvalue().splitlines()
    if stated:
        assert len(stated) == len(actual), f"{where}: {len(stated)} lines stated, printed: {actual}"
    for said, got in zip(stated, actual, strict=False):
        assert agrees(said, got), f"{where}: says {said!r}, printed {got!r}"


def run_command(command: str) -> tuple[str, int]:
    """Output (both streams) and exit code; commands without shell syntax run in this process, which is faster."""
    words = shlex.split(command)
    if words[0] == "belvedere" and not re.search(r"[|<>&;$]", re.sub(r"'[^']*'|\"[^\"]*\"", "", command)):
        from belvedere.cli.main import cli

        result = CliRunner().invoke(cli, words[1:], prog_name="belvedere")
        return result.output, result.exit_code
    shim = Path("bin")
    shim.mkdir(exist_ok=True)
    script = shim / "belvedere"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m belvedere.cli.main "$@"\n')
    script.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{shim.resolve()}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT / 'viewserver'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    done = subprocess.run(
        command, shell=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, timeout=120
    )
    return done.stdout, done.returncode


def run_console(block: Block, where: str) -> None:
    commands: list[tuple[str, list[str]]] = []
    for line in block.body.splitlines():
        if line.startswith("$ "):
            commands.append((line[2:], []))
        elif commands and commands[-1][0].endswith("\\"):
            commands[-1] = (commands[-1][0][:-1] + line.strip(), [])
        elif commands:
            commands[-1][1].append(line)
    for command, stated in commands:
        output, code = run_command(command)
        expected = "\n".join(stated)
        wanted = int(found.group(1)) if (found := EXIT_CODE.search(expected)) else 0
        expected = EXIT_CODE.sub("", expected)
        assert code == wanted, f"{where}: `{command}` ended with {code}, expected {wanted}:\n{output}"
        if expected.strip():
            assert agrees(expected, output), f"{where}: `{command}` printed\n{output}\nbut the page says\n{expected}"


def run_sql(block: Block, directory: Path) -> None:
    import belvedere
    from belvedere.cli.script import split

    db = belvedere.open(directory / "belvedere.bv")
    try:
        for piece in split(block.body):
            db.execute(piece.sql)
    finally:
        db.close()


def needs_spark(page: Path) -> bool:
    return any("spark" in block.body for block in blocks(page))


@pytest.mark.parametrize("page", [p for p in PAGES if needs_spark(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_the_examples_with_spark_do_what_they_say(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """They use the session of all tests: starting one takes longer than the examples."""
    run_page(page, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p) and not needs_spark(p)], ids=lambda p: str(p.relative_to(ROOT))
)
def test_the_examples_of_a_page_do_what_it_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(page, tmp_path, monkeypatch)


def run_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BELVEDERE_DB", raising=False)
    namespace: dict[str, object] = {}
    for block in blocks(page):
        where = f"{page.relative_to(ROOT)}:{block.line}"
        if block.language == "python":
            run_python(block, namespace, where)
        elif block.language == "sql":
            run_sql(block, tmp_path)
        else:
            assert block.language == "console", f"{where}: a block of {block.language} cannot be run"
            run_console(block, where)


def test_there_are_examples() -> None:
    assert sum(len(blocks(page)) for page in PAGES) >= 10


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}, which is not there"
