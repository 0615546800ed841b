"""Asking another process, whoever it is: a member of the pool, a coordinator, the store.

    call      a request, one answer
    stream    a request, answers as they come
    exchange  chunks there and answers back, as long as both sides like

Each is tried once, and has a deadline. An error of the `BelvedereError` tree that the other side raised is raised here;
where there is no answer the error says who was asked for what, and why nothing came. Who asks decides about repeats.

What goes wrong with gRPC, and what is done about it here:

* A channel that failed waits up to two minutes before it tries again: the pauses are set, and after a failure there is
  a new channel.
* It repeats requests on its own and writes to stderr. Both are switched off.
* A connection shows the certificate that it began with, as often as it is made again: new files, new connections.
* A peer that is frozen accepts and answers nothing, and no deadline ends a call while the socket is full: `watch.py`.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pyarrow as pa
import pyarrow.flight as flight

from belvedere import errors
from belvedere.rpc.addresses import Certificates
from belvedere.rpc.exchange import RpcExchange, until
from belvedere.rpc.failures import Failed, first_line, rebuild
from belvedere.rpc.tls_files import TlsFiles

Payload: TypeAlias = bytes | bytearray | memoryview | pa.Buffer

_CHANNEL = [
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # or a new channel would inherit the pause of the one that failed
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    # A host that vanished closes no connection. Not more often: servers refuse many pings while nothing is said.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),  # a minute otherwise, whatever the line above says
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
]


class RpcClient:
    """Connections by address, each made when it is needed first. Thread-safe."""

    def __init__(
        self,
        *,
        tls: Certificates | None = None,
        peer: str = "the member",
        unavailable: Callable[[str], errors.Unavailable] = errors.PeerUnavailable,
    ) -> None:
        """`peer`, `unavailable`: what is asked, in messages, and the error if it does not answer."""
        quieten()
        self._tls = None if tls is None else TlsFiles(tls)
        self._peer, self._unavailable = peer, unavailable
        self._lock = threading.Lock()
        self._channels: dict[str, flight.FlightClient] = {}
        self._closed = False

    def call(self, address: str, name: str, request: Payload, timeout: float) -> bytes:
        return bytes(self.answer(address, name, request, timeout).to_pybytes())

    def answer(self, address: str, name: str, request: Payload, timeout: float) -> pa.Buffer:
        """A call whose answer is not copied."""
        failed = self._failed(address, name)
        with self._raising(address, failed, timeout) as channel:
            action = flight.Action(name, pa.py_buffer(request))
            results = [result.body for result in channel.do_action(action, until(timeout))]
        if len(results) == 2:
            raise rebuild(results[1].to_pybytes(), failed)
        return results[0]

    def stream(self, address: str, name: str, request: Payload, timeout: float) -> Iterator[pa.Buffer]:
        """`timeout` covers reading them all; errors come while reading, too."""
        with self._raising(address, self._failed(address, name), timeout) as channel:
            for result in channel.do_action(flight.Action(name, pa.py_buffer(request)), until(timeout)):
                yield result.body

    def exchange(self, address: str, name: str, hello: bytes, timeout: float) -> RpcExchange:
        return RpcExchange(self._channel(address), address, name, hello, timeout)

    def drop(self, address: str) -> None:
        """Make a new connection the next time: this one failed, and would wait before it tries again."""
        with self._lock:
            self._channels.pop(address, None)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._channels.clear()

    def _channel(self, address: str) -> flight.FlightClient:
        with self._lock:
            if self._closed:
                raise errors.Closed(f"the client is closed, {address} cannot be asked any more")
            if self._tls is not None and self._tls.changed():
                self._channels.clear()  # who uses one still holds it; it shows the certificate that it began with
            if address not in self._channels:
                options = {} if self._tls is None else self._tls.texts.client_options()
                self._channels[address] = flight.FlightClient(address, generic_options=_CHANNEL, **options)
            return self._channels[address]

    def _given_up(self, address: str, channel: flight.FlightClient) -> None:
        with self._lock:
            if self._channels.get(address) is channel:  # or somebody else has noticed, and there is a new one
                del self._channels[address]

    def _failed(self, address: str, name: str) -> Failed:
        return lambda reason: self._unavailable(f"{self._peer} at {address} does not answer {name}: {reason}")

    @contextlib.contextmanager
    def _raising(self, address: str, failed: Failed, timeout: float) -> Iterator[flight.FlightClient]:
        """A connection, which must be held until the answer is read; errors of Flight become those of Belvedere."""
        channel = None
        try:
            channel = self._channel(address)
            yield channel
        except flight.FlightTimedOutError:
            self._given_up(address, channel)  # perhaps the connection is dead; those who use it still hold it
            raise failed(f"nothing came within {timeout:g} s") from None
        except flight.FlightUnavailableError:
            self._given_up(address, channel)
            raise failed("nobody is there") from None
        except flight.FlightError as error:
            raise rebuild(error.extra_info, failed) if error.extra_info else failed(first_line(error)) from None
        except (pa.ArrowException, OSError) as error:
            raise failed(first_line(error)) from None


def quieten() -> None:
    """Before the first use of gRPC in a process: its log goes to stderr, and what matters of it is raised anyway."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
