"""`make kube-demo`: Belvedere on a cluster that is made for it, told as it happens.

Up, installed, three views; a load, under which the pool grows from one view server to three; one of them is killed;
the load ends, and the pool shrinks. At the end every view is recomputed by DuckDB. A terminal has a picture of the pool
and its views all the time; elsewhere each change of the number of view servers is a line.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tests.kube import binaries, cluster, images, requirements
from tests.kube.installed import AUTOSCALED, SHOP, Installed, Load, ready
from tests.kube.kubernetes import CommandFailed, Object

PATCH = ("patch", "viewpool", "default", "--type=merge", "-p")


class Told:
    """What has happened, and on a terminal below it a picture of what is going on."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._begun = time.monotonic()
        self._out, self._live = out, out.isatty()
        self._lock = threading.Lock()
        self._drawn = 0
        """Lines of the picture that are on the terminal."""
        self._headline = ""

    def say(self, text: str) -> None:
        with self._lock:
            self._out.write(f"{self._clear()}{time.monotonic() - self._begun:6.1f} s  {text}\n")
            self._out.flush()

    def show(self, picture: Sequence[str]) -> None:
        """Elsewhere than on a terminal: its first line, where that is another one than before."""
        if self._live:
            with self._lock:
                self._out.write(self._clear() + "".join(f"          {line}\n" for line in picture))
                self._out.flush()
                self._drawn = len(picture)
        elif picture[0] != self._headline:
            self._headline = picture[0]
            self.say(picture[0])

    def _clear(self) -> str:
        drawn, self._drawn = self._drawn, 0
        return f"\x1b[{drawn}F\x1b[J" if drawn else ""

    @contextmanager
    def watching(self, look: Callable[[], Sequence[str]]) -> Iterator[None]:
        """Look each second from a thread beside."""
        done = threading.Event()

        def watch() -> None:
            while not done.wait(1.0):
                with contextlib.suppress(CommandFailed):
                    self.show(look())

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
        play(Installed(running, say=told.say), told)
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
        told.say(f"{load.result['rows']} rows are there, none is lost, views are exact")
        ready(shop, "viewserver", 1)
        told.say("one view server is enough again")
    for view in ("spend", "order_lines", "city_revenue"):
        told.say(f"recomputed by DuckDB: {shop.verify(view)}")


def picture(shop: Installed) -> list[str]:
    views = shop.cluster.get("materializedviews", namespace=SHOP)["items"]
    return drawn(shop.get("viewpool", "default"), len(shop.pods("viewserver")), views)


def drawn(pool: Object, pods: int, views: Sequence[Object]) -> list[str]:
    """The number of view servers, why it is that, and each view."""
    status, wanted = pool.get("status", {}), int(pool["spec"].get("replicas", 1))
    lines = [f"view servers  {'█' * pods}{'░' * max(0, 3 - pods)}  {pods} of {wanted}"]
    if why := status.get("scaling", {}).get("explanation"):
        lines.append(f"              {why}")
    for view in views:
        told = view.get("status", {})
        said = {one["type"]: one["status"] for one in told.get("conditions", ())}
        state = "ready" if said.get("Ready") == "True" else "not ready"
        fresh = "fresh" if said.get("Fresh") == "True" else "behind"
        figures = f"{told.get('rows', '?'):>6} rows, lag {told.get('lag', '?')}"
        lines.append(f"{view['metadata']['name']:<12}  {state}, {fresh}, {figures}")
    return lines
