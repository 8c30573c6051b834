"""Connections of many hostile clients at once, each of which says its words and waits a little."""

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, NamedTuple

ANSWER_S_MAX: Final = 0.3
THREADS: Final = 8
_TAIL_BYTES: Final = 4_096


class Speech(NamedTuple):
    """How clients of a protocol speak.

    ``words`` are the packets of one connection; ``is_answered`` says of the end of what has come
    that the last of them is answered.
    """

    words: Callable[[random.Random], list[bytes]]
    is_answered: Callable[[bytes], bool]


class Thrown(NamedTuple):
    """What was sent."""

    packets: int
    connections: int
    seconds: float


def say(port: int, said: bytes, is_answered: Callable[[bytes], bool]) -> bool:
    """Send on a connection of its own; say whether all was answered or the connection closed.

    It is not when the peer waits for the rest of something, or delays its answer.
    Error: ``OSError`` when nobody listens.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.settimeout(ANSWER_S_MAX)
        try:
            connection.sendall(said)
            tail = b""
            while data := connection.recv(1 << 16):
                tail = (tail + data)[-_TAIL_BYTES:]
                if is_answered(tail):
                    return True
        except TimeoutError:
            return False
        except (ConnectionResetError, BrokenPipeError):
            return True
    return True


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
    """Throw so many packets, over a few connections at a time."""
    stop = stopping or threading.Event()
    started_s = time.monotonic()
    share = -(-packets // THREADS)
    with ThreadPoolExecutor(THREADS) as executor:
        parts = [
            executor.submit(_throw_some, port, speech, share, random.Random(seed + n), stop)
            for n in range(THREADS)
        ]
        done = [part.result() for part in parts]
    return Thrown(
        sum(sent for sent, _ in done),
        sum(connections for _, connections in done),
        time.monotonic() - started_s,
    )


def _throw_some(
    port: int, speech: Speech, packets: int, chooser: random.Random, stop: threading.Event
) -> tuple[int, int]:
    sent = connections = 0
    while sent < packets and not stop.is_set():
        words = speech.words(chooser)
        say(port, b"".join(words), speech.is_answered)
        sent += len(words)
        connections += 1
    return sent, connections
