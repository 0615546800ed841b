"""`python -m tests.kube`: a cluster for people. `make kube-up` and `make kube-down` are the same."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from tests.kube import binaries, cluster, images, requirements


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kube", description="A Kubernetes of one node.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="compile it into the cache, if that has not happened")
    commands.add_parser("prepare", help="compile it and build all images of the tests, as far as that can be here")
    commands.add_parser("packages", help="print the packages of Debian that are missing")
    up = commands.add_parser("up", help="start it")
    up.add_argument("--no-node", action="store_true", help="the control plane only: no containers")
    up.add_argument("--no-images", action="store_true", help="without the images of Belvedere")
    up.add_argument("--port", type=int, default=0, help="of the API server on loopback; 0 chooses one")
    inside = commands.add_parser("exec", help="run a command in its network, with its DNS")
    inside.add_argument("words", nargs=argparse.REMAINDER)
    commands.add_parser("images", help="build the images of Belvedere, and put them in if it runs")
    commands.add_parser(
        "demo", help="Belvedere on a cluster of its own: views, a load, autoscaling, a kill, verification"
    )
    commands.add_parser("down", help="end it, and remove what it made")
    options = parser.parse_args(arguments)
    state = requirements.cache() / "cluster"
    try:
        return run(options, state)
    except (binaries.NotBuilt, cluster.ClusterFailed, images.ImageFailed) as problem:
        print(f"kube: {problem}", file=sys.stderr)
        return 1


def run(options: argparse.Namespace, state: Path) -> int:
    match options.command:
        case "build":
            print(binaries.build().directory)
        case "prepare":
            prepare()
        case "packages":
            print(" ".join(requirements.missing_packages()))
        case "up":
            up(options, state)
        case "exec":
            running = require(state)
            words = running.inside(*options.words)
            os.execvpe(words[0], words, running.environment)
        case "images":
            running_or_none = cluster.existing(state, binaries.build())
            for archive in [*project_images(), images.archive_of(images.SPARK)]:
                if running_or_none is not None:
                    running_or_none.import_image(archive)
                print(archive)
        case "demo":
            from tests.kube.demo import demo

            demo(state.with_name("demo"))
        case "down":
            cluster.down(state)
    return 0


def require(state: Path) -> cluster.Cluster:
    running = cluster.existing(state, binaries.build())
    if running is None:
        raise cluster.ClusterFailed("there is no cluster: 'make kube-up' starts one")
    return running


def project_images() -> list[Path]:
    """Archives of all that the chart and pools need."""
    return [images.zookeeper_archive(), *map(images.archive_of, (images.BELVEDERE, images.OPERATOR))]


def prepare() -> None:
    """What is missing is said, and the tests that need it say it again."""
    executables = binaries.build()
    missing = requirements.missing_for_node() or requirements.missing_for_images()
    if missing:
        raise cluster.ClusterFailed(missing)
    images.pause_archive(executables)
    project_images()


def up(options: argparse.Namespace, state: Path) -> None:
    executables = binaries.build()
    running = cluster.existing(state, executables)
    began = time.monotonic()
    if running is None and options.no_node:
        running = cluster.up_control_plane(state, executables)
    elif running is None:
        missing = requirements.missing_for_node() or requirements.missing_for_images()
        if missing:
            raise cluster.ClusterFailed(missing)
        archives = [images.pause_archive(executables)]
        if not options.no_images:
            archives += project_images()
        began = time.monotonic()
        running = cluster.up_node(state, executables, archives, port=options.port)
    seconds = ", ".join(f"{what} after {taken:g} s" for what, taken in running.times.items())
    print(f"# up in {time.monotonic() - began:.1f} s ({seconds})")
    print(f"export KUBECONFIG={running.kubeconfig} PATH={executables.directory}:$PATH")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
