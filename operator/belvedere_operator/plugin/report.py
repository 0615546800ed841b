"""`kubectl belvedere report`: what somebody needs who helps from afar, in one archive, and nothing secret in it.

Secrets are not asked for. What may carry one all the same is taken out: passwords in URLs, tokens, and the copies of
whole manifests that kubectl keeps in annotations.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from belvedere_operator.api import GROUP
from belvedere_operator.names import POOL_LABEL
from belvedere_operator.plugin.cluster import Kubectl, KubectlFailed

KINDS = ("viewpools", "basetables", "materializedviews")
OBJECTS = ",".join(
    ("deployments", "statefulsets", "pods", "services", "poddisruptionbudgets")
    + ("horizontalpodautoscalers", "cronjobs", "jobs", "persistentvolumeclaims")
)
LOG_LINES = 2000
_HIDDEN = "(hidden)"
_SECRET_NAME = re.compile(r"(?i)(password|passwd|token|secret|credential|api[-_]?key)")
_SECRET_TEXT = (
    (re.compile(r"(?i)(\b[a-z][a-z0-9+.-]*://[^\s:/@]+:)[^\s@/]+@"), rf"\1{_HIDDEN}@"),
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]+"), _HIDDEN),
    (re.compile(r"(?i)(bearer\s+)[\w.~+/=-]{8,}"), rf"\1{_HIDDEN}"),
)


def cleaned(value: Any, name: str = "") -> Any:
    """Without what may be secret."""
    if isinstance(value, dict):
        found = {}
        for key, item in value.items():
            if key in ("managedFields", "kubectl.kubernetes.io/last-applied-configuration"):
                continue
            found[key] = cleaned(item, key)
        # A variable of a container: its name says what its value is.
        if isinstance(found.get("value"), str) and _SECRET_NAME.search(str(found.get("name", ""))):
            found["value"] = _HIDDEN
        return found
    if isinstance(value, list):
        return [cleaned(item, name) for item in value]
    if isinstance(value, str):
        if _SECRET_NAME.search(name) and not name.endswith(("Secret", "secretName", "Name")):
            return _HIDDEN
        return clean_text(value)
    return value


def clean_text(text: str) -> str:
    for pattern, instead in _SECRET_TEXT:
        text = pattern.sub(instead, text)
    return text


def contents(kubectl: Kubectl, gateway: Callable[[str], Any]) -> Iterator[tuple[str, str]]:
    """Name and text of each file. What cannot be had is a file that says why."""

    def told(get: Callable[[], Any]) -> str:
        try:
            found = get()
        except Exception as error:
            return f"not to be had: {error}\n"
        return found if isinstance(found, str) else json.dumps(cleaned(found), indent=1) + "\n"

    yield "version.json", told(lambda: kubectl.get("--raw", "/version"))
    for kind in KINDS:
        yield f"{kind}.json", told(lambda kind=kind: kubectl.get(f"{kind}.{GROUP}"))  # type: ignore[misc]
    yield "objects.json", told(lambda: kubectl.get(OBJECTS, "-l", POOL_LABEL))
    yield "events.json", told(lambda: kubectl.get("events"))
    for name in _names(kubectl, f"viewpools.{GROUP}"):
        yield f"pools/{name}.json", told(lambda name=name: gateway(name))  # type: ignore[misc]
    for name in _names(kubectl, "pods", "-l", POOL_LABEL):
        for previous in (False, True):
            words = ["logs", name, "--all-containers", f"--tail={LOG_LINES}", *(["--previous"] if previous else [])]
            text = told(lambda words=words: clean_text(kubectl.run(*words)))  # type: ignore[misc]
            if not (previous and text.startswith("not to be had")):
                yield f"logs/{name}{'.previous' if previous else ''}.log", text


def _names(kubectl: Kubectl, *words: str) -> list[str]:
    try:
        return [item["metadata"]["name"] for item in kubectl.get(*words)["items"]]
    except KubectlFailed:
        return []


def write(path: Path, files: Iterator[tuple[str, str]]) -> int:
    """The number of files."""
    count = 0
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files:
            data = text.encode()
            entry = tarfile.TarInfo(f"belvedere-report/{name}")
            entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(data))
            count += 1
    path.chmod(0o600)
    return count
