"""A stream in both directions that stays open: chunks there, answers back.

Measured against a call for each chunk, a stream that stays open costs half of the CPU on both sides, and the body of a
chunk is not copied on its way into gRPC. A chunk is some bytes (Flight's application metadata) and perhaps a body.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from belvedere.rpc.failures import FLIGHT_ERRORS

_BODY = pa.schema([("payload", pa.uint8())])


class RpcExchange:
    """The side that began. Raises what Flight raises (`FLIGHT_ERRORS`)."""

    def __init__(self, channel: flight.FlightClient, address: str, name: str, hello: bytes, timeout: float) -> None:
        self._address = address
        self._opened, self._timeout = time.monotonic(), timeout
        self._channel = channel  # it must live as long as the stream
        descriptor = flight.FlightDescriptor.for_command(name.encode() + b"\0" + hello)
        self._writer, self._reader = channel.do_exchange(descriptor, until(timeout))
        self._begun = False

    def serves(self, address: str, seconds: float) -> bool:
        """Whether it goes there, and has so much time left."""
        return address == self._address and time.monotonic() - self._opened + seconds < self._timeout

    def write(self, chunk: bytes, body: memoryview | None) -> None:
        if not self._begun:
            self._writer.begin(_BODY)
            self._begun = True
        if body is None:
            self._writer.write_metadata(chunk)
        else:
            column = pa.Array.from_buffers(pa.uint8(), body.nbytes, [None, pa.py_buffer(body)])
            self._writer.write_with_metadata(pa.RecordBatch.from_arrays([column], schema=_BODY), chunk)

    def answer(self) -> bytes:
        return bytes(self._reader.read_chunk().app_metadata.to_pybytes())

    def cancel(self) -> None:
        """From any thread: what the other one waits for fails."""
        self._reader.cancel()

    def close(self) -> None:
        with contextlib.suppress(*FLIGHT_ERRORS):  # it may have failed already; who needs it to work has noticed
            self._writer.close()


def until(timeout: float) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(timeout=timeout)


def parted(command: bytes) -> tuple[str, bytes]:
    """The name of an exchange, and what its beginner says."""
    name, _, hello = command.partition(b"\0")
    return name.decode(errors="replace"), hello


def body_of(chunk: Any) -> memoryview | None:
    return None if chunk.data is None else memoryview(chunk.data.column(0).buffers()[1]).cast("B")
