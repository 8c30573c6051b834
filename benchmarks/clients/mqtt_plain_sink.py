"""As ``mqtt_sink`` for small packets on many connections: a plain epoll loop.

An event loop's own cost per read would be the limit there, not the load generator. CONNECT,
SUBSCRIBE (one filter) and PINGREQ are answered; a QoS 1 publish, which comes alone and has
packet id 1, is acknowledged; QoS 0 publishes of one length go to the one subscriber of their
topic. Packets are below 128 bytes.
"""

import select
import socket
from collections.abc import Callable
from typing import Final

from benchmarks.clients.mqtt_packets import acks
from benchmarks.clients.mqtt_sink import (
    BACKLOG,
    CONNACK,
    CONNECT,
    PINGREQ,
    PINGRESP,
    SUBSCRIBE,
    announce,
)
from benchmarks.clients.mqtt_streams import HOST

_READ_BYTES: Final = 8 << 10  # each read allocates as much
_PUBLISH: Final = 0x30
_PUBACK_1: Final = acks(b"\x00", b"\x01")
_TOPIC_AT: Final = 4


class PlainSink:
    """All connections."""

    def __init__(self) -> None:
        self._listening = socket.create_server((HOST, 0), backlog=BACKLOG)
        self._poll = select.epoll()
        self._poll.register(self._listening, select.EPOLLIN)
        self._sockets: dict[int, socket.socket] = {}
        self._subscribers: dict[bytes, Callable[[bytes], int]] = {}
        self._held = b""  # of the one publisher

    def run(self) -> None:
        """Say where it listens, and go on until killed."""
        announce(self._listening.getsockname()[1])
        while True:
            for descriptor, _event in self._poll.poll():
                sock = self._sockets.get(descriptor)
                if sock is None:
                    self._accept()
                elif data := sock.recv(_READ_BYTES):
                    self._answer(sock, data)
                else:
                    self._sockets.pop(descriptor).close()

    def _accept(self) -> None:
        sock, _address = self._listening.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets[sock.fileno()] = sock
        self._poll.register(sock, select.EPOLLIN)

    def _answer(self, sock: socket.socket, data: bytes) -> None:
        kind = data[0]
        if self._held or kind == _PUBLISH:
            self._route(self._held + data)
        elif kind == _PUBLISH | 2:
            sock.send(_PUBACK_1)
        elif kind == CONNECT:
            sock.send(CONNACK)
            if rest := data[2 + data[1] :]:
                self._answer(sock, rest)
        elif kind == SUBSCRIBE:
            self._subscribers[data[6:-1]] = sock.send
            sock.send(b"\x90\x03" + data[2:4] + b"\x00")
        elif kind == PINGREQ:
            sock.send(PINGRESP)

    def _route(self, data: bytes) -> None:
        length = 2 + data[1]
        topic_end = _TOPIC_AT + data[_TOPIC_AT - 1]
        end = len(data) - len(data) % length
        subscribers = self._subscribers
        for start in range(0, end, length):
            packet = data[start : start + length]
            subscribers[packet[_TOPIC_AT:topic_end]](packet)
        self._held = data[end:]


if __name__ == "__main__":
    PlainSink().run()
