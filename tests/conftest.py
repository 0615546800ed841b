"""Settings that all tests share, and a promise that each of them keeps: nothing is compiled while rows wait."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings
from numba.core import event

# The same examples in every run, whoever runs them, and no limit on the clock: machines are busy at times.
settings.register_profile("belvedere", deadline=None, derandomize=True, database=None, print_blob=True)
settings.load_profile("belvedere")

# A kernel that is called with types it does not declare would be compiled there: here that is an error at once.
os.environ.setdefault("BELVEDERE_STRICT_KERNELS", "1")


class Compiled(event.Listener):  # type: ignore[misc]  # numba has no types
    """The functions that were compiled in this process, in any of its threads."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if function.__module__.startswith("belvedere."):
            self.names.append(f"{function.__module__}.{function.__qualname__}{event.data['args']}")

    def on_end(self, event: Any) -> None:
        """Nothing more to learn."""


COMPILED = Compiled()


def pytest_configure(config: pytest.Config) -> None:
    """What the first start of a version does, before the first test."""
    from belvedere.engine.warm import compile_kernels

    compile_kernels()
    event.register("numba:compile", COMPILED)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of a real Kubernetes are known by the cluster that they ask for, and those of Spark by the session."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        if {"control_plane", "node", "helm"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("kubernetes")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Whatever a test creates, writes and reads, in the embedded database, on a shard or in a member of a pool."""
    before = len(COMPILED.names)
    yield
    assert COMPILED.names[before:] == []
