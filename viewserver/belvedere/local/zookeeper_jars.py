"""Where the Java classes of a ZooKeeper server come from: Debian's packages, the cache, or a Maven repository.

The six jars are what a single server needs and no more (no Netty, no admin server). Their digests are fixed here, so it
does not matter where they come from. That is, in this order: the repository `BELVEDERE_MAVEN_REPOSITORY`, a mirror of
Central in Maven's own settings, or whatever the command `mvn` knows. Proxies are those of the environment.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from belvedere.errors import CoordinationUnavailable
from belvedere.local.java import cache_directory, java_command, repository

VERSION = "3.9.4"
MAVEN_SECONDS = 300
DEBIAN_DIRECTORY = Path("/usr/share/java")
DEBIAN_JARS = ("zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "metrics-core", "snappy-java")


@dataclass(frozen=True)
class Jar:
    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path(self) -> str:
        """In a Maven repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file}"


JARS = (
    Jar(
        "org.apache.zookeeper",
        "zookeeper",
        VERSION,
        "7bb3bb38bbddbc71424c59a7a0b170a1b2147313a84c972225ab0568dab513bf",
    ),
    Jar(
        "org.apache.zookeeper",
        "zookeeper-jute",
        VERSION,
        "bd9750935add09b6cb920f7bcf0fa7b9a8165c45cdafd8ee1fc6808c46ec9094",
    ),
    Jar("org.slf4j", "slf4j-api", "2.0.13", "e7c2a48e8515ba1f49fa637d57b4e2f590b3f5bd97407ac699c3aa5efb1204a9"),
    Jar("org.slf4j", "slf4j-simple", "2.0.13", "3153fe1d689cffb94f1530b58470c306685ba68844de8857116e3b6ebb81d9f7"),
    Jar(
        "io.dropwizard.metrics",
        "metrics-core",
        "4.1.12.1",
        "cec34936faa625039f4e46123eccaa10a9eb9d9a40c6075830cd81330e259cf9",
    ),
    Jar(
        "org.xerial.snappy",
        "snappy-java",
        "1.1.10.5",
        "0f3f1857ed33116583f480b4df5c0218836c47bfbc9c6221c0d73f356decf37b",
    ),
)


def find_java(environment: Mapping[str, str] | None = None) -> str:
    found = java_command(environment)
    if found is None:
        raise CoordinationUnavailable(
            "a ZooKeeper server cannot be started here: there is no java on the PATH and no JAVA_HOME; "
            "install a Java runtime (11 or newer), or name a ZooKeeper that runs elsewhere"
        )
    return found


def find_classes(environment: Mapping[str, str] | None = None, debian: Path = DEBIAN_DIRECTORY) -> list[Path]:
    """The class path of a ZooKeeper server; what is missing is downloaded into the cache."""
    environment = os.environ if environment is None else environment
    installed = [debian / f"{name}.jar" for name in DEBIAN_JARS]
    if all(jar.exists() for jar in installed):
        return installed
    directory = cache_directory(f"zookeeper-{VERSION}", environment)
    missing = [jar for jar in JARS if not _is_intact(directory / jar.file, jar)]
    if missing:
        _download(missing, directory, repository(environment))
    return [directory / jar.file for jar in JARS]


def _download(jars: list[Jar], directory: Path, source: str | None) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if source is None:
            _copy_with_maven(jars, directory)
        else:
            with ThreadPoolExecutor(len(jars)) as pool:
                list(pool.map(lambda jar: _download_one(jar, directory, source), jars))
    except OSError as problem:  # urllib's errors are OSErrors as well
        reason = getattr(problem, "reason", None) or problem
        raise CoordinationUnavailable(
            f"a ZooKeeper server cannot be started here: its jars are neither installed ({DEBIAN_DIRECTORY}, Debian's "
            f"packages zookeeper and libslf4j-java) nor in {directory}, and {source or 'Maven'} did not give them: "
            f"{reason}; BELVEDERE_MAVEN_REPOSITORY can name a Maven repository"
        ) from problem


def _download_one(jar: Jar, directory: Path, source: str) -> None:
    with urllib.request.urlopen(f"{source}/{jar.path}", timeout=30) as answer:
        _keep(jar, answer.read(), directory)


def _copy_with_maven(jars: list[Jar], directory: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise OSError("there is no command mvn")
    with tempfile.TemporaryDirectory() as place:
        for jar in jars:
            artifact = f"-Dartifact={jar.group}:{jar.artifact}:{jar.version}"
            done = subprocess.run(
                [maven, "-q", "-B", "dependency:copy", artifact, f"-DoutputDirectory={place}"],
                cwd=place,
                capture_output=True,
                text=True,
                timeout=MAVEN_SECONDS,
            )
            if done.returncode != 0:
                raise OSError(f"mvn dependency:copy {artifact} failed: {(done.stdout + done.stderr).strip()[-300:]}")
            _keep(jar, (Path(place) / jar.file).read_bytes(), directory)


def _keep(jar: Jar, data: bytes, directory: Path) -> None:
    """Verified, into the cache. Others may be doing the same: a name appears only with all its bytes."""
    found = hashlib.sha256(data).hexdigest()
    if found != jar.sha256:
        raise OSError(f"{jar.file} has the SHA-256 {found} and should have {jar.sha256}")
    handle, name = tempfile.mkstemp(prefix=jar.file, dir=directory)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, directory / jar.file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _is_intact(file: Path, jar: Jar) -> bool:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest() == jar.sha256
    except OSError:
        return False
