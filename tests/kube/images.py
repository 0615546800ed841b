"""Images from Dockerfiles, without a container engine or a registry: buildah, and archives in the cache.

The project's Dockerfiles name an official Python as their base; here it is a file system made from Debian's packages,
since tests take nothing from registries. `RUN` works in a chroot with this machine's network, certificates and settings
of pip. An archive is named after what goes into it, so that it is built once, and by one process at a time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from belvedere.local.zookeeper_jars import find_classes
from tests.kube import components
from tests.kube.binaries import Binaries
from tests.kube.requirements import cache

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent / "images"
SUITE = "bookworm"
NICENESS = 10
KEEP = 3
"""Archives of one image that are kept, those used last."""


class ImageFailed(Exception):
    """An image could not be built; the message is for people."""


@dataclass(frozen=True)
class Image:
    """`name`: as pods call it. `sources`: what goes into it, besides `dockerfile`, below `context`."""

    name: str
    dockerfile: Path
    context: Path
    sources: tuple[str, ...]
    arguments: dict[str, str] = field(default_factory=dict)
    parts: Image | None = None
    """Another image of these that this one takes files from."""

    @property
    def file(self) -> str:
        return self.name.rpartition("/")[2].replace(":", "-")

    def digest(self) -> str:
        whole = hashlib.sha256(f"{self.name} {sorted(self.arguments.items())} {SUITE}".encode())
        whole.update(self.dockerfile.read_bytes())
        if self.parts is not None:
            whole.update(self.parts.digest().encode())
        for path in sorted(files_of(self)):
            name = f"{path.relative_to(self.context)} {path.stat().st_mode & 0o777:o}"
            whole.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
        return whole.hexdigest()[:16]


PYTHON_BASE = "localhost/python-base:1"
ZOOKEEPER = os.environ.get("BELVEDERE_E2E_ZOOKEEPER_IMAGE", "localhost/zookeeper:test")
HBASE = os.environ.get("BELVEDERE_E2E_HBASE_IMAGE", "localhost/hbase:test")
PACKAGE = ("pyproject.toml", "README.md", "LICENSE", "viewserver/belvedere", "operator/belvedere_operator")
BELVEDERE = Image(
    os.environ.get("BELVEDERE_E2E_IMAGE", "localhost/belvedere:test"),
    ROOT / "viewserver" / "Dockerfile",
    ROOT,
    PACKAGE,
    {"BASE": PYTHON_BASE},
)
OPERATOR = Image(
    os.environ.get("BELVEDERE_E2E_OPERATOR_IMAGE", "localhost/belvedere-operator:test"),
    ROOT / "operator" / "Dockerfile",
    ROOT,
    ("pyproject.toml", "operator/belvedere_operator"),
    {"BASE": PYTHON_BASE},
)
SPARK = Image(
    os.environ.get("BELVEDERE_E2E_SPARK_IMAGE", "localhost/belvedere-spark:test"),
    ROOT / "viewserver" / "Dockerfile.spark",
    ROOT,
    PACKAGE,
    {"BASE": PYTHON_BASE, "BELVEDERE": BELVEDERE.name},
    BELVEDERE,
)
"""Images for tests; a cluster of one's own (BELVEDERE_E2E_KUBECONFIG) has them under other names."""


HBASE_IN_A_POD = {
    "hbase.rootdir": "file:///data/data",
    "hbase.tmp.dir": "/data/tmp",
    "hbase.unsafe.regionserver.hostname": "@HOST@",
    "hbase.master.hostname": "@HOST@",
    "hbase.master.ipc.address": "0.0.0.0",
    "hbase.regionserver.ipc.address": "0.0.0.0",
    "hbase.regionserver.thrift.ipaddress": "0.0.0.0",
    "hbase.master.port": "16000",
    "hbase.regionserver.port": "16020",
}
"""What is different from an HBase on this machine's loopback."""


def files_of(image: Image) -> Iterator[Path]:
    for source in image.sources:
        path = image.context / source
        found = path.rglob("*") if path.is_dir() else [path]
        yield from (file for file in found if file.is_file() and "__pycache__" not in file.parts)


def archive_of(image: Image) -> Path:
    """The archive; builds it if these sources were never built."""
    directory = cache() / "images"
    directory.mkdir(parents=True, exist_ok=True)
    with _alone(directory):
        archive = directory / f"{image.file}-{image.digest()}.tar"
        if not archive.exists():
            print(f"building image {image.name}", file=sys.stderr, flush=True)
            if image.arguments.get("BASE") == PYTHON_BASE:
                _make_base(directory)
            if image.parts is not None:
                _build_in_storage(image.parts, directory)  # that its archive is there does not say that this is, too
            _build(image, archive)
        os.utime(archive)
        _prune(directory, image)
        return archive


def pause_archive(binaries: Binaries) -> Path:
    """The image of every pod's first process: one executable."""
    context = cache() / "images" / "pause"
    context.mkdir(parents=True, exist_ok=True)
    shutil.copy2(binaries.pause, context / "pause")
    (context / "Dockerfile").write_text('FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n')
    return archive_of(Image(components.PAUSE_IMAGE, context / "Dockerfile", context, ("pause",)))


def zookeeper_archive() -> Path:
    """ZooKeeper from its jars and Debian's Java."""
    context = cache() / "images" / "zookeeper"
    shutil.rmtree(context, ignore_errors=True)
    shutil.copytree(HERE / "zookeeper", context)
    (context / "jars").mkdir()
    for jar in find_classes():
        shutil.copyfile(jar, context / "jars" / jar.name)  # for everybody to read, unlike those in the cache
    sources = ("zkServer.sh", "jars")
    return archive_of(Image(ZOOKEEPER, context / "Dockerfile", context, sources, {"BASE": PYTHON_BASE}))


def hbase_archive() -> Path:
    """HBase from the jars and settings of the tests' own, for pods: `$HOST` is what others call it."""
    from belvedere.backend.hbase.local import jars, settings

    context = cache() / "images" / "hbase"
    shutil.rmtree(context, ignore_errors=True)
    shutil.copytree(HERE / "hbase", context)
    (context / "jars").mkdir()
    for jar in jars.find_classes().glob("*.jar"):
        shutil.copyfile(jar, context / "jars" / jar.name)  # for everybody to read, unlike those in the cache
    written = settings.write_configuration(context / "settings", 2181, HBASE_IN_A_POD)
    for file in written.iterdir():
        file.rename(context / "settings" / file.name)
    written.rmdir()
    (context / "settings" / "jvm").write_text(" ".join((*settings.JVM, settings.FAST_START)))
    sources = ("hbase.sh", "jars", "settings")
    return archive_of(Image(HBASE, context / "Dockerfile", context, sources, {"BASE": PYTHON_BASE}))


def _make_base(directory: Path) -> None:
    if _buildah(directory, "inspect", "--type", "image", PYTHON_BASE, quiet=True):
        return
    context = directory / "base"
    context.mkdir(exist_ok=True)
    shutil.copy2(HERE / "base" / "Dockerfile", context)
    command = [
        *("mmdebstrap", "--quiet", "--variant=minbase", "--include=python3,python3-venv,ca-certificates"),
        *('--aptopt=Acquire::Languages "none"', '--customize-hook=rm -rf "$1"/var/lib/apt/lists/*'),
        *(f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "man", "locale")),
        *(SUITE, str(context / "root.tar")),
    ]
    _run(["unshare", "--mount", "nice", "-n", str(NICENESS), *command], "the base image")
    if not _buildah(directory, "bud", "--quiet", "--tag", PYTHON_BASE, str(context)):
        raise ImageFailed(f"image {PYTHON_BASE} could not be built: buildah says why above")


def _build(image: Image, archive: Path) -> None:
    directory = archive.parent
    _build_in_storage(image, directory)
    partial = archive.with_suffix(".part")
    partial.unlink(missing_ok=True)
    # A Docker archive is not compressed: packing and unpacking took 40 s of CPU, and it is read from this disk only.
    if not _buildah(directory, "push", "--quiet", image.name, f"docker-archive:{partial}:{image.name}"):
        raise ImageFailed(f"image {image.name} could not be written to {partial}: buildah says why above")
    partial.rename(archive)


def _build_in_storage(image: Image, directory: Path) -> None:
    """Layers that are known are not made again."""
    settings = directory / "pip.conf"
    settings.write_text("[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n")
    volumes = {
        "/etc/ssl/certs/ca-certificates.crt": "/etc/ssl/certs/ca-certificates.crt",
        str(settings): "/etc/pip.conf",
    }
    build = [
        *("bud", "--quiet", "--layers", "--file", str(image.dockerfile), "--tag", image.name),
        *(word for name, value in image.arguments.items() for word in ("--build-arg", f"{name}={value}")),
        *(word for here, there in volumes.items() for word in ("--volume", f"{here}:{there}:ro")),
        str(image.context),
    ]
    if not _buildah(directory, *build):
        raise ImageFailed(f"image {image.name} could not be built: buildah says why above")


def _buildah(directory: Path, *words: str, quiet: bool = False) -> bool:
    """In mounts of its own, so that none stays behind."""
    storage = ("--root", str(directory / "storage"), "--runroot", str(directory / "run"))
    (directory / "tmp").mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "STORAGE_DRIVER": "overlay",
        "BUILDAH_ISOLATION": "chroot",
        "TMPDIR": str(directory / "tmp"),
    }
    command = ["unshare", "--mount", "nice", "-n", str(NICENESS), "buildah", *storage, *words]
    errors = subprocess.DEVNULL if quiet else sys.stderr
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
    return done.returncode == 0


def _run(command: Sequence[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ImageFailed(f"{what} could not be made: {done.stderr.strip()[-800:]}")


def _prune(directory: Path, image: Image) -> None:
    archives = sorted(directory.glob(f"{image.file}-*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in archives[KEEP:]:
        old.unlink()


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    with open(directory / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
