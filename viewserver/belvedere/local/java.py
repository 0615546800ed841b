"""Where Java, Maven and their downloads are on this machine. Callers say what cannot be started without them."""

from __future__ import annotations

import os
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

_SETTINGS = Path("/etc/maven/settings.xml")


def java_command(environment: Mapping[str, str] | None = None) -> str | None:
    """`JAVA_HOME` first, then the PATH."""
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    if home and os.access(Path(home, "bin", "java"), os.X_OK):
        return str(Path(home, "bin", "java"))
    return shutil.which("java", path=environment.get("PATH"))


def cache_directory(name: str, environment: Mapping[str, str] | None = None) -> Path:
    """A place for downloads that every checkout shares."""
    environment = os.environ if environment is None else environment
    cache = environment.get("BELVEDERE_CACHE")
    base = Path(cache) if cache else Path(environment.get("HOME") or Path.home()) / ".cache" / "belvedere"
    return base / name


def repository(environment: Mapping[str, str]) -> str | None:
    """The repository that is configured; None: only Maven itself knows."""
    named = environment.get("BELVEDERE_MAVEN_REPOSITORY")
    if named:
        return named.rstrip("/")
    home = Path(environment.get("HOME") or Path.home())
    for settings in (home / ".m2" / "settings.xml", _SETTINGS):
        mirror = _mirror_of_central(settings)
        if mirror is not None:
            return mirror.rstrip("/")
    return None


def _mirror_of_central(settings: Path) -> str | None:
    try:
        root = ElementTree.parse(settings).getroot()
    except (OSError, ElementTree.ParseError):
        return None
    for mirror in root.iterfind(".//{*}mirrors/{*}mirror"):
        names = [name.strip() for name in (mirror.findtext("{*}mirrorOf") or "").split(",")]
        url = (mirror.findtext("{*}url") or "").strip()
        blocked = (mirror.findtext("{*}blocked") or "").strip() == "true"
        if url and not blocked and "!central" not in names and {"central", "*", "external:*"} & set(names):
            return url
    return None
