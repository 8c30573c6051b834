"""A broker that only says yes: what the load generator reaches against it is its ceiling.

Publishes of one length go on as they came to all that subscribed, and are acknowledged when
they are QoS 1; nothing is looked at, matched or kept. With ``--replay`` a session that comes
back gets so many messages, as many of them in flight as ``--window``.
"""

import argparse
import asyncio
import sys
from typing import Final

import uvloop

from benchmarks.clients.mqtt_packets import ACK_BYTES, IDS, PUBACK, Table, acks
from benchmarks.clients.mqtt_streams import HOST, UniformStream

CONNECT: Final = 0x10
CONNACK: Final = b"\x20\x02\x00\x00"
SUBSCRIBE: Final = 0x82
PINGREQ: Final = 0xC0
PINGRESP: Final = b"\xd0\x00"
_DISCONNECT: Final = 0xE0
_CLEAN: Final = 0x02
_QOS: Final = 0x06
BACKLOG: Final = 1024


class Sink:
    """State shared by all connections."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.replayed: int = arguments.replay
        self.window: int = arguments.window
        self.table = Table([arguments.replay_topic.encode()], count=IDS, qos=1)
        self.subscribers: set[SinkConnection] = set()


class SinkConnection(UniformStream):
    """Takes CONNECT and SUBSCRIBE one by one, then a stream of one kind of packet."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink
        self._id_at = 0
        self._left = 0
        self._sent = 0

    def opening(self, end: int) -> bool:
        """Answer CONNECT and SUBSCRIBE; anything else comes alone and begins the stream."""
        at = 0
        while at < end:
            body_at, next_at = self._packet(at)
            kind = self.buffer[at]
            if kind == CONNECT:
                self._connect(self.buffer[body_at + 7])
            elif kind == SUBSCRIBE:
                self._subscribe(bytes(self.buffer[body_at:next_at]))
            elif kind == PINGREQ:
                self.write(PINGRESP)
            elif kind != _DISCONNECT:
                self._begin(body_at, next_at)
                return True
            at = next_at
        return False

    def take(self, end: int) -> None:
        """Pass publishes on and acknowledge them; an acknowledgement lets the next one go."""
        if self.buffer[0] == PUBACK:
            if self._left:
                self._replay(min(self._left, end // ACK_BYTES))
            return
        if subscribers := self._sink.subscribers:
            piece = bytes(self.buffer[:end])
            for subscriber in subscribers:
                subscriber.write(piece)
        if self.buffer[0] & _QOS:
            high = self.buffer[self._id_at : end : self.length]
            self.write(acks(high, self.buffer[self._id_at + 1 : end : self.length]))

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.BufferedProtocol``."""
        super().connection_lost(exc)
        self._sink.subscribers.discard(self)

    def _packet(self, at: int) -> tuple[int, int]:
        """Return where the body of the packet at ``at`` begins, and where it ends."""
        value = shift = 0
        while True:
            at += 1
            value |= (self.buffer[at] & 0x7F) << shift
            shift += 7
            if self.buffer[at] < 0x80:
                return at + 1, at + 1 + value

    def _connect(self, flags: int) -> None:
        self.write(CONNACK)
        if self._sink.replayed and not flags & _CLEAN:
            self._left = self._sink.replayed
            self._replay(min(self._sink.window, self._left))

    def _subscribe(self, body: bytes) -> None:
        self._sink.subscribers.add(self)
        self.write(b"\x90\x03" + body[:2] + b"\x00")

    def _begin(self, body_at: int, next_at: int) -> None:
        """From now on all packets are as long as the first; note where the id is."""
        self.length = next_at
        topic_bytes = int.from_bytes(self.buffer[body_at : body_at + 2], "big")
        self._id_at = body_at + 2 + topic_bytes

    def _replay(self, count: int) -> None:
        self.write(self._sink.table.slice(self._sent, count))
        self._sent += count
        self._left -= count


def announce(port: int) -> None:
    """Print the listening address for the parent process."""
    sys.stdout.write(f"port {port}\n")
    sys.stdout.flush()


async def serve(arguments: argparse.Namespace) -> None:
    """Listen, say where, and go on until killed."""
    sink = Sink(arguments)
    server = await asyncio.get_running_loop().create_server(
        lambda: SinkConnection(sink), HOST, 0, backlog=BACKLOG
    )
    announce(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replay", type=int, default=0)
    parser.add_argument("--replay-topic", default="replay", help="its length matters")
    parser.add_argument("--window", type=int, default=1_000)
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
