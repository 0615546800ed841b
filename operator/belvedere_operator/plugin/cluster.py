"""The cluster, through the user's own kubectl: its context, its credentials, its helpers for tokens."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from belvedere_operator.api import GROUP

SECONDS = 60.0


class KubectlFailed(Exception):
    """kubectl said no; the text is its own."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """`namespace`: empty is that of the context."""

    context: str = ""
    namespace: str = ""
    kubeconfig: str = ""

    def words(self, *words: str, namespaced: bool = True) -> list[str]:
        executable = shutil.which("kubectl")
        if executable is None:
            raise KubectlFailed("kubectl is not on the PATH")
        found = [executable]
        found += ["--kubeconfig", self.kubeconfig] if self.kubeconfig else []
        found += ["--context", self.context] if self.context else []
        found += ["--namespace", self.namespace] if self.namespace and namespaced else []
        return [*found, *words]

    def run(self, *words: str, stdin: str | None = None, seconds: float = SECONDS) -> str:
        try:
            done = subprocess.run(self.words(*words), input=stdin, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise KubectlFailed(f"kubectl {words[0]} did not end within {seconds:g} s") from None
        if done.returncode:
            raise KubectlFailed(done.stderr.strip() or f"kubectl {words[0]} ended with {done.returncode}")
        return done.stdout

    def get(self, *words: str) -> Any:
        return json.loads(self.run("get", *words, "-o", "json"))

    def items(self, plural: str, *words: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(f"{plural}.{GROUP}", *words)["items"]
        return found

    def current_namespace(self) -> str:
        if self.namespace:
            return self.namespace
        found = self.run("config", "view", "--minify", "-o", "jsonpath={..namespace}").strip()
        return found or "default"

    def own_token(self) -> str:
        """Of the user in the kubeconfig, where it is a plain one."""
        return self.run("config", "view", "--minify", "--raw", "-o", "jsonpath={.users[0].user.token}").strip()

    def account_token(self, account: str) -> str:
        """Of a service account, for the gateway alone."""
        return self.run("create", "token", account, "--audience", GROUP, "--duration", "10m").strip()


def columns(rows: Sequence[Sequence[object]]) -> str:
    """Rows as kubectl shows them: columns with two blanks between."""
    texts = [["" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in texts
    )
