"""Every example of docs/howto/http.md is run, in its own language, against `belvedere serve`; what it says is true."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_examples import EXIT_CODE, FENCE, ROOT, agrees, squeezed

PAGE = ROOT / "docs" / "howto" / "http.md"
SAID = re.compile(r"^[^#/\n]*(?:print|console\.log)\(.*\);?\s+(?:#|//) (?P<text>.*)$", re.MULTILINE)
SECONDS = 120


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """`belvedere serve`, as the page starts it, on a free port; and `belvedere` on the path of the examples."""
    monkeypatch.chdir(tmp_path)
    command = tmp_path / "bin" / "belvedere"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m belvedere.cli.main "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'viewserver'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    for name in ("BELVEDERE_DB", "BELVEDERE_URL", "BELVEDERE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    belvedere = [str(command), "sql", "--db", "shop.bv", "-c", "SHOW TABLES"]
    subprocess.run(belvedere, check=True, capture_output=True, timeout=SECONDS)  # the directory is there
    served = subprocess.Popen(
        [str(command), "serve", "--db", "shop.bv", "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert served.stdout is not None
        said = served.stdout.readline()
        assert agrees("serving embedded database at http://127.0.0.1:…", said), said
        yield said.split()[-1]
    finally:
        served.terminate()
        assert served.wait(60) == 0
        assert served.stdout is not None
        served.stdout.close()


def run_console(body: str, where: str) -> None:
    """The commands of all blocks share a shell, so the page may set variables."""
    commands: list[tuple[str, list[str]]] = []
    continued = False
    for line in body.splitlines():
        if line.startswith("$ "):
            commands.append((line[2:], []))
        elif continued:
            commands[-1] = (commands[-1][0][:-1] + line.strip(), [])
        elif line:
            commands[-1][1].append(line)
        continued = commands[-1][0].endswith("\\") and not commands[-1][1]
    script = "\n".join(f"{command}\necho; echo '(exit code '$?')---'" for command, _ in commands)
    script = script.replace("echo; echo '(exit code '$?')---'", 'code=$?; echo; echo "(exit code $code)---"')
    done = subprocess.run(
        ["bash", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    outputs = done.stdout.split("---\n")
    assert len(outputs) == len(commands) + 1, done.stdout
    for (command, stated), output in zip(commands, outputs, strict=False):
        expected = "\n".join(stated)
        if not EXIT_CODE.search(expected):
            expected += "\n(exit code 0)"
        assert agrees(expected, output), f"{where}: `{command}` printed\n{output}\nbut the page says\n{expected}"


def stated(body: str) -> list[str]:
    return [found["text"] for found in SAID.finditer(body)]


def check_printed(body: str, done: subprocess.CompletedProcess[str], where: str) -> None:
    assert done.returncode == 0, f"{where}: {done.stdout}{done.stderr}"
    printed = done.stdout.splitlines()
    assert len(printed) == len(stated(body)), f"{where}: {printed}"
    for said, got in zip(stated(body), printed, strict=True):
        assert agrees(said, got), f"{where}: says {said!r}, printed {got!r}"


def test_the_examples_of_the_page_do_what_it_says(url: str, tmp_path: Path) -> None:
    if shutil.which("node") is None or shutil.which("curl") is None:
        pytest.skip("node (20.18 or newer) and curl are needed")
    text = PAGE.read_text().replace("http://127.0.0.1:8080", url)
    blocks = [(found["language"], found["body"]) for found in FENCE.finditer(text)][1:]
    assert {language for language, _ in blocks} == {"console", "javascript", "python", "yaml"}
    shell, python = "", ""
    for number, (language, body) in enumerate(blocks):
        where = f"{PAGE.name}, block {number + 2}"
        if language == "console":
            settings = "\n".join(line for line in shell.splitlines() if re.match(r"\$ [A-Z]+=http", line))
            run_console(f"{settings}\n{body}".strip(), where)
            shell += body
        elif language == "javascript":
            script = tmp_path / "example.mjs"
            script.write_text(body)
            command = ["node", "--no-warnings", "--experimental-eventsource", str(script)]
            check_printed(body, subprocess.run(command, capture_output=True, text=True, timeout=SECONDS), where)
        elif language == "python":
            done = subprocess.run(
                [sys.executable, "-c", python + body], capture_output=True, text=True, timeout=SECONDS, check=False
            )
            before = [said for said in stated(python) if "print" in python]
            assert done.returncode == 0, f"{where}: {done.stderr}"
            shown = done.stdout.splitlines()[-len(stated(body)) :]
            for said, got in zip(stated(body), shown, strict=True):
                assert agrees(said, got), f"{where}: says {said!r}, printed {got!r}"
            assert len(done.stdout.splitlines()) == len(before) + len(stated(body))
            # later blocks use what this one has made, without writing again
            python += body if "import requests" in body else ""
    assert squeezed(text)
