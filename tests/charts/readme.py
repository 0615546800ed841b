"""Writes the README of the chart from its values and their schema: `python -m tests.charts.readme`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "charts" / "belvedere"
HEAD = """\
# The chart belvedere

The operator of Belvedere with everything that it needs: custom resource definitions, rights, admission, external
metrics, and a ZooKeeper for trying out. Pools and views are resources of their own: see
[Kubernetes](../../docs/howto/kubernetes.md).

```
helm install belvedere charts/belvedere --namespace belvedere-system --create-namespace
helm test belvedere --namespace belvedere-system
```

Definitions are upgraded with the chart, and kept when it is uninstalled (`crds.keep`), since views go with them.

## Values

This table is made from `values.yaml` and `values.schema.json` by `python -m tests.charts.readme`. A value that is not
in it is refused.

| value | default | meaning |
|---|---|---|
"""


def leaves(schema: dict[str, Any], values: Any, path: str = "") -> Iterator[tuple[str, Any, str]]:
    """Path, default and description of everything that can be set."""
    for name, part in schema["properties"].items():
        if name == "global":
            continue
        below = f"{path}.{name}" if path else name
        if part.get("additionalProperties") is False and "requests" not in part["properties"]:
            yield from leaves(part, values[name], below)
        else:
            yield below, values[name], part["description"]


def text() -> str:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    rows = (f"| `{path}` | `{json.dumps(default)}` | {meaning} |" for path, default, meaning in leaves(schema, values))
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    (CHART / "README.md").write_text(text())
    sys.exit(0)
