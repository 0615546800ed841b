"""The store on a Flight port: actions of services, and errors that the client can raise again."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from belvedere.backend.addresses import Certificates, location
from belvedere.backend.served import wire
from belvedere.backend.served.service import Answer, Service
from belvedere.errors import BelvedereError, Closed, DiskError, StoreUnavailable


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
        """`advertise`: the host by which others reach this one, if it listens on all of its addresses."""
        scheme = "grpc" if tls is None else "grpc+tls"
        options = _server_options(tls)
        try:
            self._server = _Server(services, location(scheme, host, port), **options)
        except (pa.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0]
            raise StoreUnavailable(f"the store cannot listen on {host}:{port}: {reason}") from error
        self.port: int = self._server.port
        self.address = location(scheme, advertise or host, self.port)
        self._thread = threading.Thread(target=self._server.serve, name="store-server", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Returns when no call is running any more."""
        self._server.shutdown()
        self._thread.join()


class _Server(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(self, services: Sequence[Service], location: str, **options: Any) -> None:
        super().__init__(location, **options)
        self._services = {name: service for service in services for name in service.names()}

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        service = self._services.get(action.type)
        if service is None:
            raise flight.FlightServerError(f"no action {action.type!r} here")
        return _results(service, action.type, action.body)

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return [(name, "") for name in sorted(self._services)]


def _results(service: Service, action: str, body: pa.Buffer) -> Iterator[Any]:
    try:
        answer: Answer = service.answer(action, body)
        for part in answer:
            yield flight.Result(part)
    except Closed as error:
        gone = StoreUnavailable(str(error))  # for the client it is a server that goes down
        raise flight.FlightServerError("the store is closed", wire.pack_error(gone)) from None
    except BelvedereError as error:
        raise flight.FlightServerError(type(error).__name__, wire.pack_error(error)) from None
    except Exception as error:
        # A defect of the server: the client learns that it happened, and may try again.
        failed = StoreUnavailable(f"the store failed in {action}: {type(error).__name__}: {error}")
        raise flight.FlightServerError("the store failed", wire.pack_error(failed)) from None


def _server_options(tls: Certificates | None) -> dict[str, Any]:
    if tls is None:
        return {}
    if tls.certificate is None or tls.key is None:
        raise StoreUnavailable("a server with TLS needs a certificate and a key")
    options: dict[str, Any] = {"tls_certificates": [(_content(tls.certificate), _content(tls.key))]}
    if tls.authority is not None:
        options |= {"verify_client": True, "root_certificates": _content(tls.authority)}
    return options


def client_options(tls: Certificates | None) -> dict[str, Any]:
    if tls is None:
        return {}
    options: dict[str, Any] = {}
    if tls.authority is not None:
        options["tls_root_certs"] = _content(tls.authority)
    if tls.certificate is not None and tls.key is not None:
        options |= {"cert_chain": _content(tls.certificate), "private_key": _content(tls.key)}
    return options


def _content(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise DiskError(f"TLS file {path} cannot be read: {error.strerror}") from error
