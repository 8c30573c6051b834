"""Many sessions that want few of very many topics, and come back together.

``leave``: make ``--sessions`` sessions, each with ``--wanted`` topics of its own, spread evenly
over all ``--topics``, and go. ``back``: all return; each must get exactly its messages, as many
of each topic as there were ``--rounds``. Topics are those of ``mqtt_store fill``.
"""

import argparse
import json
import socket
import time
from typing import Any, Final

from benchmarks.clients.connections import close_all, open_many, raise_file_limit, watch_all
from benchmarks.clients.mqtt_packets import DISCONNECT, IDS, Table
from benchmarks.clients.mqtt_streams import MqttFault

_STALLED_S_MAX: Final = 120.0
_READ_BYTES: Final = 65_536
_EVENTS_MAX: Final = 1_024


def leave(arguments: argparse.Namespace) -> dict[str, Any]:
    """Make the sessions."""

    def filters_of(session: int) -> list[bytes]:
        return [f"{arguments.tag}/{n:07d}".encode() for n in _wanted(arguments, session)]

    started_s = time.monotonic()
    sockets = open_many(
        arguments.port, _ids(arguments), clean=False, filters_of=filters_of, qos=1
    )
    seconds = time.monotonic() - started_s
    close_all(sockets, politely=DISCONNECT)
    return {"rate": arguments.sessions / seconds}


def back(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return to all sessions and take what waits for them."""
    topic = f"{arguments.tag}/{0:07d}".encode()
    table = Table([topic], count=IDS, qos=1, payload_bytes=arguments.bytes)  # for its places
    left = arguments.sessions * arguments.wanted * arguments.rounds
    started_s = time.monotonic()
    sockets = open_many(arguments.port, _ids(arguments), clean=False)
    connected_s = time.monotonic() - started_s
    poll = watch_all(sockets)
    by_descriptor = {sock.fileno(): _Returned(sock, table) for sock in sockets}
    while left:
        events = poll.poll(_STALLED_S_MAX, _EVENTS_MAX)
        if not events:
            msg = f"{left:,} messages lost"
            raise MqttFault(msg)
        for descriptor, _event in events:
            left -= by_descriptor[descriptor].read()
    seconds = time.monotonic() - started_s
    for session, returned in enumerate(by_descriptor.values()):
        returned.check(_wanted(arguments, session), arguments.rounds)
    close_all(sockets)
    return {
        "rate": sum(len(one.numbers) for one in by_descriptor.values()) / seconds,
        "seconds": seconds,
        "connected_s": connected_s,
    }


class _Returned:
    """A session that is back: what it has got so far."""

    def __init__(self, sock: socket.socket, table: Table) -> None:
        self.numbers: list[int] = []
        self._sock = sock
        self._table = table
        self._held = bytearray()

    def read(self) -> int:
        """Take and acknowledge what has come; return how many messages."""
        data = self._sock.recv(_READ_BYTES)
        if not data:
            msg = "a session's connection was closed"
            raise MqttFault(msg)
        self._held += data
        end = len(self._held) - len(self._held) % self._table.length
        if end:
            self._sock.send(self._table.acks_for(self._held, end))
            self.numbers += self._table.numbers(self._held, end)
            del self._held[:end]
        return end // self._table.length

    def check(self, wanted: range, rounds: int) -> None:
        """Each wanted number came in each round. Error: ``MqttFault``."""
        if sorted(self.numbers) != sorted([*wanted] * rounds):
            msg = f"a session got {self.numbers[:20]} and not {rounds} times {wanted}"
            raise MqttFault(msg)


def _wanted(arguments: argparse.Namespace, session: int) -> range:
    """Return the numbers of a session's topics."""
    apart = arguments.topics // (arguments.sessions * arguments.wanted)
    first = session * arguments.wanted * apart
    return range(first, first + arguments.wanted * apart, apart)


def _ids(arguments: argparse.Namespace) -> list[str]:
    return [f"{arguments.tag}-{n}" for n in range(arguments.sessions)]


def main() -> None:
    """Do one step and print what it found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=["leave", "back"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tag", required=True)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--topics", type=int, default=1_000_000)
    parser.add_argument("--wanted", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--bytes", type=int, default=64)
    arguments = parser.parse_args()
    raise_file_limit(arguments.sessions)
    found = leave(arguments) if arguments.step == "leave" else back(arguments)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
