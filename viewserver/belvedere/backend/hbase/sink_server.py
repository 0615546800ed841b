"""The server side of HBase's RPC, as much of it as replication calls: a region server ships log entries, and is
answered when they are durable.

One thread for each connection: a region server has one for each of its log queues, and waits for the answer before it
sends more. So whoever answers late slows down HBase's reader of the log, and nobody else; nobody may refuse, since a
sink that fails three times is left out for a while. What cannot be made durable now is therefore tried again here,
until it is, or until the region server has given up and closed the connection (it waits for 60 s by default, and then
sends the same to another sink).
"""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

from belvedere.backend.hbase import messages
from belvedere.backend.hbase.connection import read_varint, varint
from belvedere.errors import BelvedereError, DataError
from belvedere.retry import Backoff

log = logging.getLogger(__name__)

Receive = Callable[[memoryview, memoryview], None]
"""(request, cell block). Returns when all of it is durable; raises what may be tried again, or `DataError`."""

_PREAMBLE = b"HBas\x00"
_SIMPLE = 80
_LENGTH = struct.Struct(">i")
_LARGEST = 1 << 30
_METHOD = "ReplicateWALEntry"
_EMPTY = b"\x00"
_UNSUPPORTED = "java.lang.UnsupportedOperationException"


class SinkServer:
    """Listens from the start. `host`, `port`: where; 0 chooses a port."""

    def __init__(self, receive: Receive, host: str = "127.0.0.1", port: int = 0) -> None:
        self._receive = receive
        self._listener = socket.create_server((host, port), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.requests = self.bytes = self.delays = 0
        self.trouble = ""
        """Why the last request that could not be made durable was not, while it waits."""
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._closed = threading.Event()
        self._acceptor = threading.Thread(target=self._accept, name="sink", daemon=True)
        self._acceptor.start()

    def close(self, timeout: float = 5.0) -> None:
        """No more answers: what is on its way comes again, elsewhere."""
        self._closed.set()
        with self._lock:
            connections, threads = list(self._connections), list(self._threads)
        for each in (self._listener, *connections):
            _shut(each)
        for thread in (self._acceptor, *threads):
            thread.join(timeout)

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, address = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), name=f"sink {address}", daemon=True)
            with self._lock:
                if self._closed.is_set():
                    _shut(connection)
                    return
                self._connections.add(connection)
                self._threads.add(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._greet(connection)
            while True:
                frame = _read(connection, _size(connection))
                with self._lock:
                    self.requests += 1
                    self.bytes += len(frame)
                connection.sendall(self._answer(connection, memoryview(frame)))
        except (OSError, EOFError):
            pass
        except DataError as error:
            log.warning("a connection to the replication sink is closed: %s", error)
        finally:
            _shut(connection)
            with self._lock:
                self._connections.discard(connection)
                self._threads.discard(threading.current_thread())

    @staticmethod
    def _greet(connection: socket.socket) -> None:
        preamble = bytes(_read(connection, len(_PREAMBLE) + 1))
        if preamble != _PREAMBLE + bytes([_SIMPLE]):
            raise DataError(
                f"it begins with {preamble!r}; expected HBase's RPC without authentication (hbase.security."
                "authentication=simple; Kerberos is not understood yet)"
            )
        header = messages.ConnectionHeader.FromString(bytes(_read(connection, _size(connection))))
        if header.cell_block_compressor_class:
            raise DataError(
                f"cells are compressed with {header.cell_block_compressor_class}; leave hbase.client.rpc.compressor of"
                " the region servers unset"
            )
        codec = header.cell_block_codec_class.rpartition(".")[2]
        if codec not in ("KeyValueCodec", "KeyValueCodecWithTags"):
            raise DataError(
                f"cells come as {header.cell_block_codec_class!r}; set hbase.replication.rpc.codec to KeyValueCodec"
            )

    def _answer(self, connection: socket.socket, frame: memoryview) -> bytes:
        size, at = read_varint(frame, 0)
        header = messages.RequestHeader.FromString(bytes(frame[at : at + size]))
        at += size
        response = messages.ResponseHeader(call_id=header.call_id)
        body = _EMPTY
        if header.method_name != _METHOD:
            body = b""
            _fail(response, _UNSUPPORTED, f"{header.method_name}: this is no region server, it takes log entries only")
        else:
            size, at = read_varint(frame, at)
            request, cells = frame[at : at + size], frame[at + size :]
            if len(cells) != header.cell_block_meta.length:
                raise DataError(f"a block of {header.cell_block_meta.length} bytes was announced, {len(cells)} came")
            self._until_durable(connection, request, cells)
        head: bytes = response.SerializeToString()
        head = varint(len(head)) + head
        return _LENGTH.pack(len(head) + len(body)) + head + body

    def _until_durable(self, connection: socket.socket, request: memoryview, cells: memoryview) -> None:
        pause = Backoff(0.02, 1.0)
        while True:
            try:
                self._receive(request, cells)
            except DataError:
                raise
            except BelvedereError as error:
                if str(error) != self.trouble:
                    log.warning("log entries of hbase wait: %s", error)
                self.trouble = str(error)
                self.delays += 1
                if self._closed.wait(pause.next()) or _gone(connection):
                    raise EOFError from error
            else:
                self.trouble = ""
                return


def _fail(response: Any, name: str, text: str) -> None:
    response.exception.exception_class_name = name
    response.exception.stack_trace = f"{name}: {text}"
    response.exception.do_not_retry = True


def _size(connection: socket.socket) -> int:
    (size,) = _LENGTH.unpack(_read(connection, _LENGTH.size))
    if not 0 < size <= _LARGEST:
        raise DataError(f"a frame of {size} bytes; at most {_LARGEST} are taken")
    return int(size)


def _read(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view, filled = memoryview(data), 0
    while filled < size:
        count = connection.recv_into(view[filled:])
        if not count:
            raise EOFError
        filled += count
    return data


def _gone(connection: socket.socket) -> bool:
    """Whether the other side has closed the connection; while it waits for an answer it sends nothing."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it may be gone
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
