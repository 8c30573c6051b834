"""Many connections at once, opened with plain sockets, a bounded number of them half-way."""

import resource
import select
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from benchmarks.clients.mqtt_packets import connect, subscribe
from benchmarks.clients.mqtt_streams import (
    ANSWER_S_MAX,
    HOST,
    MqttFault,
    read_connack,
    read_suback,
)

# Mosquitto listens with a backlog of 100: beyond it the system drops what asks to connect, and
# asks again a second later.
_HALF_WAY_MAX: Final = 64
_SPARE_FILES: Final = 100
_PINGREQ: Final = b"\xc0\x00"
_PINGRESP: Final = b"\xd0\x00"


def raise_file_limit(connections: int) -> None:
    """Let this process, and what it starts, hold so many sockets. Error: ``MqttFault``."""
    wanted = connections + _SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        msg = f"{wanted:,} open files are needed and {hard:,} allowed: raise `ulimit -Hn`"
        raise MqttFault(msg)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def open_many(
    port: int,
    client_ids: Iterable[str],
    *,
    clean: bool = True,
    filters_of: Callable[[int], list[bytes]] | None = None,
    qos: int = 0,
) -> list[socket.socket]:
    """Return connections past CONNACK, and past SUBACK where ``filters_of`` their number is.

    Only the answers are read: what a broker sends beyond them waits in the socket.
    """
    found: list[socket.socket] = []
    half_way: deque[tuple[socket.socket, int]] = deque()

    def finish_one() -> None:
        sock, filter_count = half_way.popleft()
        read_connack(sock)
        if filter_count:
            read_suback(sock, filter_count)
        found.append(sock)

    for number, client_id in enumerate(client_ids):
        filters = filters_of(number) if filters_of else []
        sock = socket.socket()
        sock.settimeout(ANSWER_S_MAX)
        sock.connect((HOST, port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asked = subscribe(filters, qos=qos) if filters else b""
        sock.sendall(connect(client_id, clean=clean) + asked)
        half_way.append((sock, len(filters)))
        if len(half_way) == _HALF_WAY_MAX:
            finish_one()
    while half_way:
        finish_one()
    return found


def ping_all(sockets: list[socket.socket]) -> None:
    """Ask each connection for a sign of life. Error: ``MqttFault``."""
    for sock in sockets:
        sock.sendall(_PINGREQ)
    for sock in sockets:
        if sock.recv(len(_PINGRESP), socket.MSG_WAITALL) != _PINGRESP:
            msg = "a held connection does not answer"
            raise MqttFault(msg)


def watch_all(sockets: list[socket.socket]) -> select.epoll:
    """Return an epoll that says which of them can be read; they block no more."""
    poll = select.epoll()
    for sock in sockets:
        sock.setblocking(False)  # noqa: FBT003 - the name of the standard library
        poll.register(sock, select.EPOLLIN)
    return poll


def close_all(sockets: list[socket.socket], *, politely: bytes = b"") -> None:
    """Send each a last packet and close it."""
    for sock in sockets:
        if politely:
            sock.sendall(politely)
        sock.close()
