"""Every example of docs/howto/views-over-hbase.md is run, against a real HBase and a pool of real processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import happybase
import pytest

from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.cluster.process.local import ClusterShape, LocalCluster
from tests.docs.test_examples import FENCE, ROOT, Block, run_python, squeezed
from tests.gateway.test_howto import run_console

PAGE = ROOT / "docs" / "howto" / "views-over-hbase.md"
TABLES = ("orders", "customers")


def _drop(hbase: LocalHBase) -> None:
    connection = happybase.Connection(*hbase.thrift)
    for name in connection.tables():
        if name.decode() in TABLES:
            connection.delete_table(name, disable=True)
    connection.close()


def test_the_examples_of_the_page_do_what_it_says(
    hbase: LocalHBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    command = tmp_path / "bin" / "belvedere"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m belvedere.cli.main "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    host, port = hbase.thrift
    text = PAGE.read_text()
    text = text.replace("127.0.0.1:2181", hbase.zookeeper).replace('"127.0.0.1", 9090', f'"{host}", {port}')
    found = [(block["language"], block["body"], text.count("\n", 0, block.start())) for block in FENCE.finditer(text)]
    blocks = [Block(language, body, line) for language, body, line in found]
    shown = next(block.body for block in blocks if block.language == "yaml")
    assert all(
        squeezed(part) in squeezed((ROOT / "examples/hbase/views.yaml").read_text()) for part in shown.split("---")
    )
    python, namespace = [block for block in blocks if block.language == "python"], dict[str, object]()
    consoles = [block for block in blocks if block.language == "console"]
    assert (len(python), len(consoles)) == (4, 3)
    _drop(hbase)
    try:
        run_python(python[0], namespace, "tables")
        url = f"hbase://{hbase.zookeeper}/shop_views"
        with LocalCluster(tmp_path / "pool", ClusterShape(viewservers=1, store=url, sync=False)) as cluster:
            monkeypatch.setenv("BELVEDERE_URL", cluster.url)
            run_console(consoles[0].body, "views")
            run_python(python[1], namespace, "waiting")
            run_python(python[2], namespace, "a session")
            run_python(python[3], namespace, "other clients")
            *watching, discarding = consoles[1:]
            for block in watching:
                run_console(block.body, "status")
        run_console(discarding.body, "the end")
    finally:
        for name in ("hbase", "db"):  # the page leaves its connections open, as a program does until its end
            held: Any = namespace.get(name)
            if held is not None:
                held.close()
        _drop(hbase)
