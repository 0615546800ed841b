"""The jars of an HBase: Maven resolves and fetches them once, into a cache outside the tree.

Maven Central has no archive of HBase, but all of its parts. Which they are (about 190) is Maven's business:
`hbase-server` with everything below it, and the Thrift gateway without, since its build for Hadoop 3 is not in every
mirror and the other one brings Hadoop 2.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from belvedere.errors import StoreUnavailable
from belvedere.local.java import cache_directory, java_command

VERSION = "2.6.1"
MAVEN_SECONDS = 900
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dev.belvedere</groupId><artifactId>hbase-for-tests</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.hbase</groupId><artifactId>hbase-server</artifactId>
      <version>{VERSION}-hadoop3</version></dependency>
    <dependency><groupId>org.apache.hbase</groupId><artifactId>hbase-thrift</artifactId>
      <version>{VERSION}</version>{_ALONE}</dependency>
    <dependency><groupId>org.apache.thrift</groupId><artifactId>libthrift</artifactId>
      <version>0.14.1</version>{_ALONE}</dependency>
  </dependencies>
</project>
"""
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


def missing_tool(environment: Mapping[str, str] | None = None) -> str | None:
    """One line that says why no HBase can be started here; None: one can (if the jars can be fetched)."""
    environment = os.environ if environment is None else environment
    if java_command(environment) is None:
        return "HBase needs Java: there is no java on the PATH and no JAVA_HOME; install a JRE, 11 or 17"
    if not _is_complete(_directory(environment)) and shutil.which("mvn", path=environment.get("PATH")) is None:
        return f"HBase's jars are not in {_directory(environment)}, and there is no mvn on the PATH to fetch them"
    return None


def find_classes(environment: Mapping[str, str] | None = None) -> Path:
    """The directory with the jars; fetched if they are not there."""
    environment = os.environ if environment is None else environment
    lacking = missing_tool(environment)
    if lacking is not None:
        raise StoreUnavailable(lacking)
    directory = _directory(environment)
    if _is_complete(directory):
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    with open(directory.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # others want the same 115 MB
        if not _is_complete(directory):
            _fetch(directory, environment)
    return directory


def _directory(environment: Mapping[str, str]) -> Path:
    return cache_directory(f"hbase-{VERSION}", environment)


def _is_complete(directory: Path) -> bool:
    return directory.is_dir()  # it gets its name when all is in it


def _fetch(directory: Path, environment: Mapping[str, str]) -> None:
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix="hbase-fetch-") as made:
        place = Path(made)
        (place / "pom.xml").write_text(_POM)
        command = ["mvn", "-B", "-q", *_mirror(place, environment), _PLUGIN, "-DincludeScope=runtime"]
        command.append(f"-DoutputDirectory={place / 'lib'}")
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=MAVEN_SECONDS)
        if done.returncode != 0:
            raise StoreUnavailable(
                f"HBase's jars cannot be fetched: mvn said {(done.stdout + done.stderr).strip()[-400:]}; "
                "BELVEDERE_MAVEN_REPOSITORY can name a Maven repository"
            )
        os.rename(place / "lib", directory)


def _mirror(place: Path, environment: Mapping[str, str]) -> list[str]:
    """Whoever names a repository means this one; else Maven's own settings hold."""
    named = environment.get("BELVEDERE_MAVEN_REPOSITORY")
    if not named:
        return []
    settings = place / "settings.xml"
    settings.write_text(
        "<settings><mirrors><mirror><id>named</id><mirrorOf>*</mirrorOf>"
        f"<url>{escape(named)}</url></mirror></mirrors></settings>"
    )
    return ["-s", str(settings)]
