"""Has the API server on the machine's loopback, too, though it is in a network of its own.

A socket stays in the network that it was made in. So one is made outside, where it listens, and is handed to this
process inside, which connects what it accepts to the same port there.

    python -m tests.kube.forward SOCKET PORT
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def serve(listener: socket.socket, port: int) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(copy(reader, to_writer), copy(to_reader, writer))
            to_writer.close()
        writer.close()

    async with await asyncio.start_server(accept, sock=listener) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])))
