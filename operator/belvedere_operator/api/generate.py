"""Writes what is made from the typed API: `crds/*.yaml`, the chart's copies of them, and `docs/reference/resources.md`.

    python -m belvedere_operator.api.generate [--check] [ROOT]

With `--check` nothing is written, and the exit code says whether something would be.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from belvedere_operator.api import API_VERSION
from belvedere_operator.api.crds import KINDS, Kind, definition

HEAD = (
    "# Made by `python -m belvedere_operator.api.generate` from the typed API of the operator: change that instead.\n"
)
DEFINITIONS = ("crds", "charts/belvedere/files/crds")
"""Twice: a chart has only what is in its folder, and a symbolic link does not survive every way of copying."""
PAGE = "docs/reference/resources.md"


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def crd_text(kind: Kind) -> str:
    return HEAD + yaml.dump(definition(kind), Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)


def files() -> dict[str, str]:
    """Everything that is made, by its path below the root of the repository."""
    found = {f"{folder}/{kind.file}": crd_text(kind) for folder in DEFINITIONS for kind in KINDS}
    return found | {PAGE: page()}


def page() -> str:
    """The reference: every field of spec and status."""
    lines = [
        "# Resources",
        "",
        "The custom resources of the operator, field by field; `kubectl explain mv.spec` says the same.",
        "The manifests are those of [`belvedere apply`](manifests.md). This page is made by",
        "`python -m belvedere_operator.api.generate`.",
    ]
    for kind in KINDS:
        schema = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        lines += ["", f"## {kind.name}", "", f"`{API_VERSION}`, short `{kind.short}`. {kind.description}", ""]
        lines += ["| field | type | meaning |", "|---|---|---|"]
        lines += _rows(schema["spec"], "")
        rules = _rules(schema["spec"], "spec")
        if rules:
            lines += ["", "Refused by the API server:", "", *[f"* `{path}`: {message}" for path, message in rules]]
        lines += ["", "Status:", "", "| field | type | meaning |", "|---|---|---|"]
        lines += _rows(schema["status"], "")
        columns = ", ".join(f"`{c.name}`" + (" (wide)" if c.wide else "") for c in kind.columns)
        lines += ["", f"`kubectl get {kind.short}` shows {columns}."]
    return "\n".join(lines) + "\n"


def _rows(schema: dict[str, Any], prefix: str) -> list[str]:
    rows: list[str] = []
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        path = f"{prefix}{name}"
        kind = field["type"]
        if kind == "array":
            kind = f"list of {field['items']['type']}s"
        notes = [field["description"].replace("|", "\\|")]
        if "enum" in field:
            notes.append("One of " + ", ".join(f"`{value}`" for value in field["enum"]) + ".")
        if "default" in field and field["default"] not in ({}, []):
            notes.append(f"Default: `{_plain(field['default'])}`.")
        if name in required:
            notes.append("Required.")
        rows.append(f"| `{path}` | {kind} | {' '.join(notes)} |")
        if path.rsplit(".", 1)[-1] == "conditions":
            continue
        below = field.get("items", field)
        if "properties" in below:
            rows += _rows(below, f"{path}[]." if field["type"] == "array" else f"{path}.")
    return rows


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _rules(schema: dict[str, Any], path: str) -> list[tuple[str, str]]:
    found = [(path, rule["message"]) for rule in schema.get("x-kubernetes-validations", ())]
    for name, field in schema.get("properties", {}).items():
        found += _rules(field, f"{path}.{name}")
    if "items" in schema:
        found += _rules(schema["items"], f"{path}[]")
    return found


def main(arguments: list[str]) -> int:
    check = "--check" in arguments
    places = [argument for argument in arguments if argument != "--check"]
    root = Path(places[0]) if places else Path(__file__).resolve().parents[3]
    stale = 0
    for name, text in files().items():
        path = root / name
        if path.exists() and path.read_text() == text:
            continue
        stale += 1
        sys.stdout.write(f"{name}: {'differs' if check else 'written'}\n")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
