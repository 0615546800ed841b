"""What Spark needs of a machine, checked before it starts: its own messages are Java's and name nothing to do."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from collections.abc import Mapping

from belvedere.errors import DataError
from belvedere.local.java import java_command

OLDEST_PYSPARK = (4, 1)
OLDEST_JAVA = 17
"""The oldest Java that PySpark 4 runs on."""


def require_spark() -> None:
    """Raise what is missing or of another version: pyspark, or Java."""
    require_pyspark()
    require_java()


def require_pyspark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise DataError("Spark jobs need pyspark, which is not installed; pip install 'belvedere[spark]' brings it")
    from importlib.metadata import version

    found = version("pyspark")
    if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < OLDEST_PYSPARK:
        oldest = ".".join(map(str, OLDEST_PYSPARK))
        raise DataError(f"Spark jobs need pyspark {oldest} or newer; found {found}: pip install 'belvedere[spark]'")


def require_java(environment: Mapping[str, str] | None = None) -> None:
    command = java_command(environment)
    hint = f"install a JRE of version {OLDEST_JAVA} or newer, and name it with JAVA_HOME if it is not on the PATH"
    if command is None:
        raise DataError(f"Spark needs Java, and none was found; {hint}")
    found = java_version(command)
    if found is None:
        raise DataError(f"Spark needs Java, and {command} does not tell its version; {hint}")
    if found < OLDEST_JAVA:
        raise DataError(f"Spark needs Java {OLDEST_JAVA} or newer; {command} is Java {found}; {hint}")


def java_version(command: str) -> int | None:
    """The first number of a Java's version (of 1.8 the second)."""
    try:
        done = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)
    if found is None:
        return None
    return int(found[2]) if found[1] == "1" and found[2] else int(found[1])
