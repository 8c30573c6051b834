"""Mutated Kafka frames of faulty clients, beginning as valid ones."""

import random
import struct
from collections.abc import Iterator
from typing import Final

from tests.support.hostile.users import User
from tests.support.kafka_wire import (
    API_VERSIONS,
    FETCH,
    METADATA,
    PRODUCE,
    batch,
    fetch_body,
    produce_body,
    request,
    text,
)

FRAMES_PER_CONNECTION: Final = 20
TOPIC: Final = "fuzz"
_SENTINEL: Final = 0x5EA7BEEF & 0x7FFFFFFF
_SASL_HANDSHAKE: Final = 17
_SASL_AUTHENTICATE: Final = 36
_WRONG_PASSWORD_EVERY: Final = 20  # its answer is delayed


def _sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _array(*items: bytes) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)


def login(name: str, password: str) -> list[bytes]:
    """Return the frames of SASL PLAIN."""
    token = f"\0{name}\0{password}".encode()
    return [
        request(_SASL_HANDSHAKE, 1, 1, text("PLAIN")),
        request(_SASL_AUTHENTICATE, 0, 2, _sized(token)),
    ]


def valid_frames() -> list[bytes]:
    """Return one of each request that stock clients send."""
    number = struct.Struct(">i").pack
    part_of_topic = text(TOPIC) + _array(number(0) + struct.pack(">q", -1))
    position = text(TOPIC) + _array(number(0) + struct.pack(">q", 5) + text("m"))
    member = text("g") + number(1) + text("m")
    configs = b"\2" + text(TOPIC) + _array(text("retention.ms"))
    bodies = [
        (API_VERSIONS, 0, b""),
        (METADATA, 4, _array(text(TOPIC)) + b"\0"),
        (PRODUCE, 3, produce_body([(TOPIC, 0, batch([b"a", b"b"], key=b"k"))])),
        (FETCH, 4, fetch_body(TOPIC, 0, 0, wait_ms=10)),
        (2, 1, number(-1) + _array(part_of_topic)),  # ListOffsets
        (8, 2, member + struct.pack(">q", -1) + _array(position)),  # OffsetCommit
        (9, 1, text("g") + _array(text(TOPIC) + _array(number(0)))),  # OffsetFetch
        (10, 1, text("g") + b"\0"),  # FindCoordinator
        (11, 2, _join()),
        (12, 1, member),  # Heartbeat
        (13, 1, text("g") + text("m")),  # LeaveGroup
        (14, 1, member + _array(text("m") + _sized(b"x"))),  # SyncGroup
        (15, 1, _array(text("g"))),  # DescribeGroups
        (16, 1, b""),  # ListGroups
        (_SASL_HANDSHAKE, 1, text("SCRAM-SHA-256")),
        (22, 0, b"\xff\xff" + number(60_000)),  # InitProducerId
        (20, 1, _array(text("none")) + number(1_000)),  # DeleteTopics
        (23, 2, _array(text(TOPIC) + _array(number(0) * 3))),  # epochs
        (32, 1, _array(configs) + b"\0"),  # DescribeConfigs
        (_SASL_AUTHENTICATE, 0, _sized(b"n,,n=u,r=abc")),
    ]
    return [request(key, version, 3, body) for key, version, body in bodies]


def _join() -> bytes:
    protocol = text("range") + _sized(b"\0\1" + _array(text(TOPIC)) + _sized(b""))
    times = struct.pack(">ii", 6_000, 6_000)
    return text("g") + times + text("") + text("consumer") + _array(protocol)


def words(chooser: random.Random, user: User | None) -> list[bytes]:
    """Return the frames of a connection, the last of them one that is in order."""
    return list(_words(chooser, user))


def _words(chooser: random.Random, user: User | None) -> Iterator[bytes]:
    if user is not None:
        yield from login(user.name, user.password)
    elif chooser.randrange(_WRONG_PASSWORD_EVERY) == 0:
        yield from login("u", "wrong")
    for _ in range(FRAMES_PER_CONNECTION):
        frame = chooser.choice(_FRAMES)
        yield frame if chooser.randrange(6) else mutated(frame, chooser)  # most faults end it
    yield _LAST


def is_answered(tail: bytes) -> bool:
    """Say whether the last frame is answered."""
    return _SENTINEL_BYTES in tail


def mutated(frame: bytes, chooser: random.Random) -> bytes:
    """Return the frame with a few faults; its length mostly says the truth."""
    data = bytearray(frame[4:])
    for _ in range(chooser.randrange(1, 5)):
        at = chooser.randrange(len(data)) if data else 0
        kind = chooser.randrange(6)
        if kind == 0 and data:
            data[at] ^= 1 << chooser.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            data[at:at] = chooser.randbytes(chooser.randrange(1, 16))
        elif kind == 3:
            edge = chooser.choice([-1, 0, 1, 0x7FFFFFFF, -0x80000000, 0x7FFF, 1 << 20])
            data[at : at + 4] = struct.pack(">i", edge)
        elif kind == 4 and len(data) >= 4:
            data[2:4] = struct.pack(">h", chooser.randrange(-2, 20))  # another version
        else:
            data[0:2] = struct.pack(">h", chooser.randrange(-1, 95))  # another API
    if chooser.randrange(20) == 0:
        data = bytearray(chooser.randbytes(chooser.randrange(200)))
    length = len(data) if chooser.randrange(10) else chooser.randrange(-5, 2 * len(data) + 8)
    return struct.pack(">i", length) + bytes(data)


_FRAMES: Final = valid_frames()
_LAST: Final = request(API_VERSIONS, 0, _SENTINEL, b"")
_SENTINEL_BYTES: Final = struct.pack(">i", _SENTINEL)
