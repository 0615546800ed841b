"""A process of its own that receives: it prints its address, and every number that it receives."""

from __future__ import annotations

import sys
import threading

from belvedere.cluster.transport.flight import FlightTransport
from belvedere.protocol.messages import Expect, Message
from belvedere.protocol.ring import MemberId


def main(member: str) -> None:
    transport = FlightTransport("127.0.0.1", member=MemberId(member))

    def receive(sender: MemberId, message: Message, payload: memoryview | None) -> None:
        assert isinstance(message, Expect)
        print(message.batches, flush=True)

    transport.start(receive, {})
    print(transport.address, flush=True)
    threading.Thread(target=_end_with_input, daemon=True).start()
    _ENDED.wait()
    transport.close()
    print("closed", flush=True)


_ENDED = threading.Event()


def _end_with_input() -> None:
    sys.stdin.read()
    _ENDED.set()


if __name__ == "__main__":
    main(sys.argv[1])
