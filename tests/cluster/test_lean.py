"""Processes of roles start without pandas."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from belvedere.cluster.process.lean import do_without_pandas
do_without_pandas()
import belvedere.cluster.roles.run
from belvedere.cluster.roles import store
import pyarrow as pa
assert pa.array([1, None, 3]).null_count == 1
assert pa.table({"a": ["x"]}).to_pylist() == [{"a": "x"}]
print([name for name in ("pandas", "duckdb", "sqlglot", "pyspark") if name in sys.modules])
"""


def test_a_store_starts_without_what_it_does_not_use() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
