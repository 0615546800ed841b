"""The store's services on a port of their own."""

from __future__ import annotations

from collections.abc import Sequence

from belvedere.backend.served.service import Service
from belvedere.errors import StoreUnavailable, Unavailable
from belvedere.rpc.addresses import Certificates
from belvedere.rpc.server import RpcServer


class StoreServer:
    """Serves services on one port, from the constructor on until `close`."""

    def __init__(
        self,
        services: Sequence[Service],
        host: str = "127.0.0.1",
        port: int = 0,
        tls: Certificates | None = None,
        advertise: str = "",
    ) -> None:
        try:
            self._server = RpcServer(host, port, tls=tls, advertise=advertise)
        except Unavailable as error:
            raise StoreUnavailable(f"the store {error}") from error
        self.address, self.port = self._server.address, self._server.port
        for service in services:
            self._server.serve(service.calls, service.streams)
        self._server.begin()

    def close(self) -> None:
        self._server.close()
