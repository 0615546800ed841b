"""The only module that knows kopf: it watches our resources and says which pools are to be looked at.

kopf keeps the watches (connecting, resuming, relisting) and nothing else: what is decided for a pool needs all of its
tables and views at once, which no handler of one resource has. So kopf keeps no state in the resources either.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Sequence
from typing import Any

import kopf

from belvedere_operator.api import GROUP, VERSION
from belvedere_operator.api.crds import KINDS
from belvedere_operator.kube.config import Access
from belvedere_operator.reconcile.queue import Queue
from belvedere_operator.reconcile.resources import Resources, pool_key

CLOSING_S = 0.5
"""TLS connections of watches say goodbye to each other: that takes turns of the loop after the last watch has ended."""


def watch(
    access: Access,
    namespaces: Sequence[str],
    resources: Resources,
    queue: Queue,
    stop: threading.Event,
    ready: threading.Event,
) -> None:
    """Runs until `stop` is set."""
    registry = kopf.OperatorRegistry()
    _configure(registry, access)
    for kind in KINDS:
        kopf.on.event(GROUP, VERSION, kind.plural, registry=registry)(_seen(kind.name, resources, queue))

    async def run() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await kopf.operator(
                registry=registry,
                standalone=True,
                clusterwide=not namespaces,
                namespaces=tuple(namespaces),
                stop_flag=stop,
                ready_flag=ready,
            )
        await asyncio.sleep(CLOSING_S)

    asyncio.run(run())


def _configure(registry: kopf.OperatorRegistry, access: Access) -> None:
    @kopf.on.startup(registry=registry)
    def settings_of(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.scanning.disabled = True  # our kinds are there before we are
        settings.watching.server_timeout = 300
        settings.watching.reconnect_backoff = 1.0

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(
            server=access.server,
            ca_path=str(access.authority) if access.authority else None,
            insecure=not access.verify,
            token=access.bearer(),
            certificate_path=str(access.certificate) if access.certificate else None,
            private_key_path=str(access.key) if access.key else None,
            default_namespace=access.namespace,
        )

    logging.getLogger("kopf").setLevel(logging.WARNING)


def _seen(kind: str, resources: Resources, queue: Queue) -> Any:
    def seen(event: kopf.RawEvent, **_: Any) -> None:
        found = {**event["object"], "kind": kind, "apiVersion": f"{GROUP}/{VERSION}"}
        if event["type"] == "DELETED":
            resources.remove(found)
            queue.add(pool_key(found))
        elif resources.put(found):
            queue.add(pool_key(found))

    return seen
