"""A process of a role without pandas: pyarrow imports it, where it is installed, as soon as it is given a list.

That is 0.4 s of every start and 40 MB of every process, for something that no role uses. To pyarrow it then looks as if
pandas were not installed, which it is made for.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used in processes of a cluster", name=name)


def do_without_pandas() -> None:
    """Before anything of pyarrow is used; for the rest of the process."""
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas())
