"""One connection to one service of one HBase server: preamble, header, calls with cell blocks.

    client  b"HBas" 0 80, int32 + ConnectionHeader            (80: no authentication)
            int32 + header + request + cell block             for each call; header and request with their lengths
    server  int32 + header + response + cell block

Calls are answered in any order, and carry ids. Here one thread at a time uses a connection, and may have several calls
on the way (`send`, then `receive` each): that is what a batch over many servers needs, without threads.
"""

from __future__ import annotations

import getpass
import socket
import struct
from dataclasses import dataclass
from typing import Any

from belvedere.backend.hbase import messages
from belvedere.backend.hbase.faults import remote_fault
from belvedere.errors import StoreUnavailable

_PREAMBLE = b"HBas\x00\x50"
_LENGTH = struct.Struct(">i")
_CODEC = "org.apache.hadoop.hbase.codec.KeyValueCodec"
_CONNECT_S = 5.0
CLIENT, ADMIN, MASTER = "ClientService", "AdminService", "MasterService"


@dataclass(frozen=True)
class Server:
    """An HBase server. `code`: when it was started; the next one at this address is another server."""

    host: str
    port: int
    code: int = 0

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


_NO_CALL = 1 << 31
"""Ids from here on are negative in HBase, and of no call: what is wrong with the connection itself."""


class Connection:
    """Not thread-safe. After an error that is not a `RemoteFault` it is broken: close it."""

    def __init__(self, server: Server, service: str, timeout: float, user: str | None = None) -> None:
        self.server = server
        self._where = f"{service} at {server}"
        self._next = self._pending = 0
        self._answers: dict[int, bytearray] = {}
        try:
            self._socket = socket.create_connection((server.host, server.port), min(timeout, _CONNECT_S))
        except OSError as problem:
            raise StoreUnavailable(f"hbase {self._where} cannot be reached: {problem}") from problem
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.set_timeout(timeout)
        # No version of ours: HBase would send a part of what a batch asks for and leave the rest to a retry.
        header = messages.ConnectionHeader(service_name=service, cell_block_codec_class=_CODEC)
        header.user_info.effective_user = _user() if user is None else user
        data = header.SerializeToString()
        self._write([_PREAMBLE + _LENGTH.pack(len(data)) + data])

    def set_timeout(self, seconds: float) -> None:
        """How long the socket may be silent."""
        self._seconds = seconds
        self._socket.settimeout(seconds)

    def call(self, method: str, request: Any, answer: Any, cells: bytes = b"") -> tuple[Any, memoryview]:
        """A call, its answer (of that class), and the cell block that came with it."""
        return self.receive(self.send(method, request, cells), answer)

    def send(self, method: str, request: Any, cells: bytes | memoryview = b"") -> int:
        """Begin a call; returns its id. `request`: a message, or its bytes."""
        self._next += 1
        header = messages.RequestHeader(
            call_id=self._next, method_name=method, request_param=True, timeout=int(self._seconds * 1000)
        )
        if len(cells):
            header.cell_block_meta.length = len(cells)
        body = request if isinstance(request, bytes) else request.SerializeToString()
        head = header.SerializeToString()
        begin = varint(len(head)) + head + varint(len(body))
        parts: list[bytes | memoryview] = [_LENGTH.pack(len(begin) + len(body) + len(cells)) + begin + body]
        if len(cells):
            parts.append(cells)
        self._pending += 1
        self._write(parts)
        return self._next

    def receive(self, call: int, answer: Any) -> tuple[Any, memoryview]:
        """The answer to a call that was begun."""
        while call not in self._answers:
            frame = self._read(_LENGTH.unpack(self._read(4))[0])
            size, at = read_varint(frame, 0)
            header = messages.ResponseHeader.FromString(bytes(frame[at : at + size]))
            if header.call_id >= _NO_CALL and header.HasField("exception"):  # of the connection as a whole
                fault = header.exception
                raise remote_fault(self._where, fault.exception_class_name, fault.stack_trace, True)
            self._answers[header.call_id] = frame
        frame = self._answers.pop(call)
        self._pending -= 1
        size, at = read_varint(frame, 0)
        header = messages.ResponseHeader.FromString(bytes(frame[at : at + size]))
        at += size
        if header.HasField("exception"):
            fault = header.exception
            raise remote_fault(self._where, fault.exception_class_name, fault.stack_trace, fault.do_not_retry)
        size, at = read_varint(frame, at)
        view = memoryview(frame)
        return answer.FromString(bytes(view[at : at + size])), view[at + size :]

    @property
    def is_quiet(self) -> bool:
        """Whether every call that was begun has got its answer."""
        return self._pending == 0

    def close(self) -> None:
        self._socket.close()

    def _write(self, parts: list[bytes | memoryview]) -> None:
        try:
            for part in parts:
                self._socket.sendall(part)
        except OSError as problem:
            raise self._broken(problem) from problem

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view, filled = memoryview(data), 0
        try:
            while filled < size:
                count = self._socket.recv_into(view[filled:])
                if not count:
                    raise ConnectionResetError("it closed the connection")
                filled += count
        except OSError as problem:
            raise self._broken(problem) from problem
        return data

    def _broken(self, problem: OSError) -> StoreUnavailable:
        what = f"no answer within {self._seconds:g} s" if isinstance(problem, TimeoutError) else problem
        return StoreUnavailable(f"hbase {self._where}: {what}")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such user in this container
        return "belvedere"


def varint(number: int) -> bytes:
    """As protobuf writes it."""
    out = bytearray()
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """The number that stands there, and what follows it."""
    number, shift = 0, 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
        shift += 7
