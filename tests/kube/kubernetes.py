"""Any Kubernetes, as tests use it: kubectl and helm with a kubeconfig, objects in and out, waiting for conditions."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Object = dict[str, Any]
PATIENCE_S = 150.0
"""How long tests wait for what must come: machines are busy at times, and a wait ends when it has come."""


class CommandFailed(AssertionError):
    """What kubectl or helm said; a test that did not expect it has failed."""


@dataclass(frozen=True)
class Kubernetes:
    kubeconfig: Path
    executables: Path | None
    """The directory of kubectl and helm; None: those on the PATH."""

    @property
    def environment(self) -> dict[str, str]:
        """For kubectl, helm, and clients in Python."""
        path = os.environ.get("PATH", "")
        if self.executables is not None:
            path = f"{self.executables}{os.pathsep}{path}"
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "PATH": path}

    def kubectl(self, *words: str, stdin: str | None = None, seconds: float = 120.0) -> str:
        return self._run("kubectl", words, stdin, seconds)

    def helm(self, *words: str, stdin: str | None = None, seconds: float = 300.0) -> str:
        return self._run("helm", words, stdin, seconds)

    def apply(self, *objects: Object, namespace: str = "default") -> None:
        """Server-side, as people and operators should."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        words = ("apply", "--server-side", "--force-conflicts", "--namespace", namespace, "-f", "-")
        self.kubectl(*words, stdin=json.dumps(items))

    def get(self, *words: str, namespace: str = "default") -> Object:
        """`get("pods")`: the list; `get("pod", "name")`: the object."""
        answer: Object = json.loads(self.kubectl("get", *words, "--namespace", namespace, "-o", "json"))
        return answer

    def wait(self, what: str, condition: str, namespace: str = "default", seconds: float = 120.0) -> None:
        """`wait("crd/views.example.org", "Established")`."""
        words = ("wait", what, f"--for=condition={condition}", "--namespace", namespace, f"--timeout={seconds:g}s")
        self.kubectl(*words, seconds=seconds + 30.0)

    def succeeds(self, *words: str) -> bool:
        """Whether kubectl does."""
        try:
            self.kubectl(*words)
        except CommandFailed:
            return False
        return True

    def established(self, *definitions: str) -> None:
        """Wait until their resources can be used. The API server says so a moment before all of its parts know them."""
        for name in definitions:
            self.wait(f"crd/{name}", "Established", seconds=PATIENCE_S)
            until(partial(self.succeeds, "get", name, "--all-namespaces"), PATIENCE_S, f"resources of {name}")

    def allowed(self, user: str, verb: str, resource: str, *more: str) -> None:
        """Wait until somebody has a right: who decides learns of a new binding a moment after it was made."""
        words = ("auth", "can-i", verb, resource, f"--as={user}", *more)
        until(partial(self.succeeds, *words), PATIENCE_S, f"{user} may {verb} {resource}")

    def _run(self, program: str, words: Sequence[str], stdin: str | None, seconds: float) -> str:
        executable = program if self.executables is None else str(self.executables / program)
        done = subprocess.run(
            [executable, *words], env=self.environment, input=stdin, capture_output=True, text=True, timeout=seconds
        )
        if done.returncode:
            raise CommandFailed(f"{program} {' '.join(words)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout


def until(condition: Callable[[], T | None], seconds: float, what: str) -> T:
    """Wait for a condition that becomes true; returns what it was then."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)
