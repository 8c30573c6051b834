"""Connections of many hostile clients at once, each of which says its words and waits a little.

They come from a loopback address of their own, so that the delays after wrong passwords, which go
by address, do not meet the well-behaved clients beside them.
"""

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, NamedTuple

ADDRESS: Final = "127.0.0.2"
ANSWER_S_MAX: Final = 0.3  # of silence
CONNECTION_S_MAX: Final = 2.0  # a peer with messages for a subscriber is never silent
PACKETS_PER_S_MIN: Final = 100  # slower than that, something stands still
START_S_MAX: Final = 60.0
THREADS: Final = 8
_TAIL_BYTES: Final = 4_096


class Speech(NamedTuple):
    """Packets of a protocol's clients, and the check of their answers.

    ``words`` returns the packets of one connection; ``is_answered`` returns whether the end of the
    received bytes answers the last of them.
    """

    words: Callable[[random.Random], list[bytes]]
    is_answered: Callable[[bytes], bool]


class Thrown(NamedTuple):
    """Data that was sent."""

    packets: int
    connections: int
    seconds: float
    answered: int
    """Connections whose packets were all answered, or that the peer closed."""


class StoodStill(Exception):
    """The packets could not be sent within their time."""


def seconds_max(packets: int) -> float:
    """Return the time within which so many packets must be sent."""
    return START_S_MAX + packets / PACKETS_PER_S_MIN


def say(port: int, said: bytes, is_answered: Callable[[bytes], bool]) -> bool:
    """Send on a connection of its own; say whether all was answered or the connection closed.

    It is not when the peer waits for the rest of something, delays its answer, or goes on sending
    something else. Error: ``OSError`` when nobody listens.
    """
    with socket.create_connection(
        ("127.0.0.1", port), timeout=30, source_address=(ADDRESS, 0)
    ) as connection:
        deadline_s = time.monotonic() + CONNECTION_S_MAX
        connection.settimeout(ANSWER_S_MAX)
        try:
            connection.sendall(said)
            return _read_answers(connection, is_answered, deadline_s)
        except TimeoutError:
            return False
        except (ConnectionResetError, BrokenPipeError):
            return True


def _read_answers(
    connection: socket.socket, is_answered: Callable[[bytes], bool], deadline_s: float
) -> bool:
    tail = b""
    while time.monotonic() < deadline_s:
        data = connection.recv(1 << 16)
        if not data or is_answered(tail + data):
            return True
        tail = (tail + data)[-_TAIL_BYTES:]
    return False


@contextmanager
def throwing(port: int, speech: Speech, *, packets: int, seed: int) -> Iterator[Future[Thrown]]:
    """Throw so many packets in the background; leaving ends it early."""
    stopping = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        try:
            yield executor.submit(
                throw, port, speech, packets=packets, seed=seed, stopping=stopping
            )
        finally:
            stopping.set()


def throw(
    port: int,
    speech: Speech,
    *,
    packets: int,
    seed: int,
    stopping: threading.Event | None = None,
) -> Thrown:
    """Throw so many packets, over a few connections at a time.

    Error: ``StoodStill`` when that takes longer than ``seconds_max(packets)``.
    """
    stop = stopping or threading.Event()
    started_s = time.monotonic()
    deadline_s = started_s + seconds_max(packets)
    share = -(-packets // THREADS)
    with ThreadPoolExecutor(THREADS) as executor:
        parts = [
            executor.submit(
                _throw_some,
                port,
                speech,
                share,
                chooser=random.Random(seed + n),
                stop=stop,
                deadline_s=deadline_s,
            )
            for n in range(THREADS)
        ]
        done = [part.result() for part in parts]
    sent, connections, answered = map(sum, zip(*done, strict=True))
    return Thrown(sent, connections, time.monotonic() - started_s, answered)


def _throw_some(
    port: int,
    speech: Speech,
    packets: int,
    *,
    chooser: random.Random,
    stop: threading.Event,
    deadline_s: float,
) -> tuple[int, int, int]:
    sent = connections = answered = 0
    while sent < packets and not stop.is_set():
        if time.monotonic() > deadline_s:
            stop.set()
            msg = f"{sent} of {packets} packets of a thread sent, {answered} of {connections} "
            raise StoodStill(msg + "connections answered, when the time was up")
        words = speech.words(chooser)
        answered += say(port, b"".join(words), speech.is_answered)
        sent += len(words)
        connections += 1
    return sent, connections, answered
