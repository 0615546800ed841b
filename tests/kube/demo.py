"""`make kube-demo`: Belvedere on a cluster that is made for it, told as it happens.

Up, installed, three views; a load, under which the pool grows from one view server to three; one of them is killed;
the load ends, and the pool shrinks. At the end every view is recomputed by DuckDB. A terminal has a line that shows the
pool all the time; elsewhere each change is a line.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kube import binaries, cluster, images, requirements
from tests.kube.installed import AUTOSCALED, Installed, Load, ready
from tests.kube.kubernetes import CommandFailed

PATCH = ("patch", "viewpool", "default", "--type=merge", "-p")


class Told:
    """What has happened, and on a terminal what is going on."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._live = sys.stdout.isatty()
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        with self._lock:
            print(f"{self._clear()}{time.monotonic() - self._begun:6.1f} s  {text}", flush=True)

    def show(self, text: str) -> None:
        with self._lock:
            print(f"{self._clear()}          {text}", end="", flush=True)

    def _clear(self) -> str:
        return "\r\x1b[K" if self._live else ""

    @contextmanager
    def watching(self, look: Callable[[], str]) -> Iterator[None]:
        """Look each second from a thread beside."""
        done = threading.Event()

        def watch() -> None:
            seen = ""
            while not done.wait(1.0):
                with contextlib.suppress(CommandFailed):
                    found = look()
                    if self._live:
                        self.show(found)
                    elif found.partition(" · lag")[0] != seen:
                        seen = found.partition(" · lag")[0]
                        self.say(found)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(30.0)


def demo(state: Path) -> None:
    executables = binaries.build()
    missing = requirements.missing_for_node() or requirements.missing_for_images()
    if missing:
        raise cluster.ClusterFailed(missing)
    archives = [images.pause_archive(executables), images.zookeeper_archive()]
    archives += [images.archive_of(image) for image in (images.BELVEDERE, images.OPERATOR)]
    told = Told()
    told.say("a Kubernetes of one node starts")
    running = cluster.up_node(state, executables, archives, ends_with_parent=True)
    try:
        told.say(f"Kubernetes runs ({running.layout.server}); helm install")
        play(Installed(running), told)
    finally:
        running.down()
        told.say("the cluster is gone")


def play(shop: Installed, told: Told) -> None:
    shop.install()
    told.say("kubectl apply -f examples/shop.yaml: three tables, three views, and the pool that they need")
    shop.apply_shop()
    shop.kubectl(*PATCH, json.dumps({"spec": AUTOSCALED}))
    with told.watching(lambda: picture(shop)):
        told.say("a load begins; an autoscaler may have one to three view servers")
        with Load(shop, seed=1, rows=400) as load:
            ready(shop, "viewserver", 3)
            told.say("three view servers share the keys; one of them is killed")
            shop.kill(shop.pods("viewserver")[0])
            load.more(3)
            told.say("writes and reads went on, and every epoch that was looked at was exact; the load ends")
        told.say(f"{load.result['rows']} rows are there, none is lost, views are exact: {load.result}")
        ready(shop, "viewserver", 1)
        told.say("one view server is enough again")
    for view in ("spend", "order_lines", "city_revenue"):
        told.say(f"recomputed by DuckDB: {shop.verify(view)}")


def picture(shop: Installed) -> str:
    """One line of the pool."""
    status = shop.get("viewpool", "default").get("status", {})
    pods = len(shop.pods("viewserver"))
    wanted = shop.get("viewpool", "default")["spec"].get("replicas")
    return f"view servers {pods} of {wanted} · {'█' * pods}{'░' * max(0, 3 - pods)} · lag {status.get('lag', '?')}"
