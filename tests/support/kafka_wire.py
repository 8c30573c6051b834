"""As little of the Kafka protocol as tests and benchmarks need to write frames of their own.

Big-endian, non-flexible versions only: ApiVersions v0, Metadata v1, Produce v3, Fetch v4.
"""

import socket
import struct
import time
from collections.abc import Sequence
from typing import Final, Self

import crc32c

from gateway.model import (
    HEADER_BYTES,
    LENGTH_AT,
    LENGTH_OVERHEAD_BYTES,
    BatchHeader,
    parse_batch_header,
)

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
API_VERSIONS: Final = 18

_FROM_ATTRIBUTES: Final = struct.Struct(">hiqqqhii")


def text(value: str) -> bytes:
    """Encode a STRING: a length as int16, then UTF-8."""
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def request(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """Return a whole frame: length, request header v1 with client id ``wire``, body."""
    header = struct.pack(">hhi", api_key, version, correlation_id) + text("wire")
    return struct.pack(">i", len(header) + len(body)) + header + body


def varint(value: int) -> bytes:
    """Encode a zigzag varint, as records do."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def batch(
    values: Sequence[bytes], *, key: bytes | None = None, timestamp_ms: int | None = None
) -> bytes:
    """Return an uncompressed v2 record batch of values of one key; no headers, no producer id."""
    now_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    records = bytearray()
    encoded_key = varint(-1) if key is None else varint(len(key)) + key
    for delta, value in enumerate(values):
        body = b"\0" + varint(0) + varint(delta) + encoded_key
        body += varint(len(value)) + value + varint(0)
        records += varint(len(body)) + body
    last = len(values) - 1
    covered = _FROM_ATTRIBUTES.pack(0, last, now_ms, now_ms, -1, -1, -1, last + 1) + records
    return struct.pack(">qiibI", 0, len(covered) + 9, -1, 2, crc32c.crc32c(covered)) + covered


def produce_body(batches: Sequence[tuple[str, int, bytes]], *, acks: int = -1) -> bytes:
    """Encode Produce v3 of (topic, partition, batch) triples, one topic entry each."""
    out = [struct.pack(">hhii", -1, acks, 30_000, len(batches))]
    for topic, partition, data in batches:
        out += [text(topic), struct.pack(">iii", 1, partition, len(data)), data]
    return b"".join(out)


def produce_errors(answer: bytes) -> list[tuple[int, int]]:
    """Return (error code, base offset) of each partition of a Produce v3 answer's body."""
    at, found = 4, []
    for _ in range(struct.unpack_from(">i", answer, 0)[0]):
        at += 2 + struct.unpack_from(">h", answer, at)[0]
        partitions = struct.unpack_from(">i", answer, at)[0]
        at += 4
        for _ in range(partitions):
            _number, code, base_offset = struct.unpack_from(">ihq", answer, at)
            found.append((code, base_offset))
            at += 22
    return found


def fetch_body(topic: str, partition: int, offset: int, *, wait_ms: int = 500) -> bytes:
    """Encode Fetch v4 of one partition, at least one byte, at most 50 MiB."""
    head = struct.pack(">iiiibi", -1, wait_ms, 1, 50 << 20, 0, 1) + text(topic)
    return head + struct.pack(">iiqi", 1, partition, offset, 50 << 20)


def fetch_records(answer: bytes) -> tuple[int, int, bytes]:
    """Return (error code, high watermark, record batches) of an answer to ``fetch_body``."""
    at = 8
    at += 2 + struct.unpack_from(">h", answer, at)[0] + 4
    _number, code, high_watermark, _stable = struct.unpack_from(">ihqq", answer, at)
    at += 22
    aborted = struct.unpack_from(">i", answer, at)[0]
    at += 4 + 16 * max(0, aborted)
    size = struct.unpack_from(">i", answer, at)[0]
    return code, high_watermark, answer[at + 4 : at + 4 + max(0, size)]


def batches_of(records: bytes) -> list[BatchHeader]:
    """Return the header of each whole batch; a cut one at the end is left out."""
    found: list[BatchHeader] = []
    at = 0
    while len(records) - at >= HEADER_BYTES:
        size = LENGTH_OVERHEAD_BYTES + struct.unpack_from(">i", records, at + LENGTH_AT)[0]
        if at + size > len(records):
            break
        found.append(parse_batch_header(records, at))
        at += size
    return found


class Connection:
    """A blocking connection that sends frames and reads answers in order."""

    def __init__(self, port: int, *, timeout_s: float = 30) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.socket.close()

    def call(self, api_key: int, version: int, body: bytes) -> bytes:
        """Send a request and return its answer's body, correlation id checked and left out."""
        self._correlation_id += 1
        self.socket.sendall(request(api_key, version, self._correlation_id, body))
        answer = self.read()
        if struct.unpack_from(">i", answer)[0] != self._correlation_id:
            msg = "the answer is another request's"
            raise ConnectionError(msg)
        return answer[4:]

    def read(self) -> bytes:
        """Return the next frame without its length. Errors: ``ConnectionError`` at the end."""
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            some = self.socket.recv(size - len(data))
            if not some:
                msg = "closed by the server"
                raise ConnectionError(msg)
            data += some
        return bytes(data)

    def produce(self, topic: str, partition: int, data: bytes) -> tuple[int, int]:
        """Produce one batch with acks=all; return (error code, base offset)."""
        body = produce_body([(topic, partition, data)])
        return produce_errors(self.call(PRODUCE, 3, body))[0]

    def fetch(self, topic: str, partition: int, offset: int) -> tuple[int, int, bytes]:
        """Fetch from one partition; return (error code, high watermark, batches)."""
        return fetch_records(self.call(FETCH, 4, fetch_body(topic, partition, offset)))


def answers(port: int) -> bool:
    """Whether a Kafka endpoint answers ApiVersions on that port of 127.0.0.1."""
    try:
        with Connection(port, timeout_s=2) as connection:
            return connection.call(API_VERSIONS, 0, b"")[:2] == b"\0\0"
    except (OSError, struct.error):
        return False
