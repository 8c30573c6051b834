"""Sends batches that were encoded before, each when the last of its messages is due.

What a server would append whose delay costs nothing. Says "ready" when all are encoded; ends when
all are answered.
"""

import argparse
import socket
import struct
import sys
import threading
import time
from typing import Final

from gateway.records.codec import encode_batch

_PRODUCE: Final = 0
_VERSION: Final = 7
_TIMEOUT_MS: Final = 30_000
_HEADER: Final = "deliver-at"
_CONNECT_BEFORE_S: Final = 0.5


def frame(topic: str, dues_unix_ms: list[int], correlation: int) -> bytes:
    """Return a Produce request with one batch for partition 0, acks=all."""
    name = topic.encode()
    batch = encode_batch(
        [
            (due_ms, None, b"x" * 100, [(_HEADER, str(due_ms).encode())])
            for due_ms in dues_unix_ms
        ]
    )
    body = (
        struct.pack(">hhih", _PRODUCE, _VERSION, correlation, -1)
        + struct.pack(">hhii", -1, -1, _TIMEOUT_MS, 1)
        + struct.pack(">h", len(name))
        + name
        + struct.pack(">iii", 1, 0, len(batch))
        + batch
    )
    return struct.pack(">i", len(body)) + body


def _drain(connection: socket.socket, count: int) -> None:
    """Read the answers of ``count`` requests."""
    with connection.makefile("rb") as answers:
        for _ in range(count):
            (size,) = struct.unpack(">i", answers.read(4))
            answers.read(size)


def main() -> None:
    """Encode, say so, and send in time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--over-s", type=float, required=True)
    parser.add_argument("--first-due-ms", type=int, required=True)
    parser.add_argument("--slice-ms", type=int, default=2)
    given = parser.parse_args()
    slices: dict[int, list[int]] = {}
    for number in range(given.messages):
        after_ms = int(number * given.over_s * 1_000 / given.messages)
        due_ms = given.first_due_ms + after_ms
        slices.setdefault(after_ms // given.slice_ms, []).append(due_ms)
    frames = [
        (dues[-1] / 1_000, frame(given.topic, dues, number))
        for number, dues in enumerate(slices.values())
    ]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    # Not earlier: a server does not keep a connection that says nothing.
    time.sleep(max(frames[0][0] - time.time() - _CONNECT_BEFORE_S, 0))
    connection = socket.create_connection(("127.0.0.1", given.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    reader = threading.Thread(target=_drain, args=(connection, len(frames)))
    reader.start()
    for due_s, data in frames:
        wait_s = due_s - time.time()
        if wait_s > 0:
            time.sleep(wait_s)
        connection.sendall(data)
    reader.join()
    connection.close()


if __name__ == "__main__":
    main()
