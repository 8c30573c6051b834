"""Mutated and random frames at a live gateway: it answers or closes, and nobody else notices.

The frames begin as those that stock clients sent in an admin round trip, a group and a produce.
"""

import random
import socket
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.crash.silent_connections import check_log
from tests.interop.kafka.clients import CONFLUENT, KAFKA_PYTHON, Member
from tests.interop.kafka.programs.protocol import Message
from tests.support.frame_recorder import Recorder
from tests.support.gateway import Gateway
from tests.support.hostile.kafka import mutated
from tests.support.kafka_wire import API_VERSIONS, Connection, batch, request
from tests.support.process_usage import resident_bytes
from tests.support.topics import create_topic, fresh_name
from tests.support.waiting import wait_until

pytestmark = pytest.mark.crash

FRAMES = 6_000
FRAMES_SOAK = 1_000_000
FRAMES_PER_CONNECTION = 20
ANSWER_S_MAX = 0.3
GROWTH_BYTES_MAX = 256 << 20
SENTINEL = 0x5EA7BEEF & 0x7FFFFFFF


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with Recorder() as found:
        yield found


def _has_read(member: Member, count: int) -> bool:
    return len(member.values) == count


def record(recorder: Recorder, gateway: Gateway) -> list[bytes]:
    """Let two clients do their rounds through the recorder."""
    recorder.target_port = gateway.kafka_port
    through = f"127.0.0.1:{recorder.port}"
    for client in (CONFLUENT, KAFKA_PYTHON):
        topic = create_topic(through)
        messages = [Message(b"%d" % n, key=b"k", partition=0) for n in range(20)]
        client.produce(through, topic, messages, compression="gzip", idempotent=True)
        client.consume(through, topic, count=20)
        member = client.member(through, topic, fresh_name("g"))
        wait_until(partial(_has_read, member, 20), within_s=40, what="all is consumed")
        member.program.stop()
        client.admin(through, fresh_name(), fresh_name("g"))
    return recorder.frames


def throw(port: int, frames: list[bytes]) -> None:
    """Send frames and a valid one behind them; read until that is answered, or it is closed."""
    last = request(API_VERSIONS, 0, SENTINEL, b"")
    sentinel = struct.pack(">i", SENTINEL)
    with socket.create_connection(("127.0.0.1", port), ANSWER_S_MAX) as connection:
        try:
            connection.sendall(b"".join(frames) + last)
            tail = b""
            while data := connection.recv(1 << 16):
                tail = (tail + data)[-4096:]
                if sentinel in tail:
                    return
        except (TimeoutError, ConnectionResetError, BrokenPipeError):
            return  # it waits (a long poll, half a frame) or has closed; both are answers


def throw_many(gateway: Gateway, frames: list[bytes], *, count: int) -> None:
    topic = create_topic(gateway.bootstrap)
    pid = gateway.pid
    before_bytes = resident_bytes(pid)
    seed = random.SystemRandom().randrange(1 << 32)
    chooser = random.Random(seed)
    written = 0
    with Connection(gateway.kafka_port) as healthy:
        for thrown in range(0, count, FRAMES_PER_CONNECTION):
            faulty = [
                mutated(chooser.choice(frames), chooser) for _ in range(FRAMES_PER_CONNECTION)
            ]
            throw(gateway.kafka_port, faulty)
            if thrown % (10 * FRAMES_PER_CONNECTION) == 0:
                answer = healthy.produce(topic, 0, batch([b"%d" % written]))
                assert answer == (0, written), f"seed {seed}, {thrown} frames: {answer}"
                written += 1
    assert gateway.pid == pid
    growth_bytes = resident_bytes(pid) - before_bytes
    assert growth_bytes < GROWTH_BYTES_MAX, f"seed {seed}: grew by {growth_bytes} bytes"
    check_log(gateway, f"seed {seed}")


def fuzzed(tmp_path: Path, recorder: Recorder, *, count: int) -> None:
    settings = {
        "adapters.kafka.advertise": f"127.0.0.1:{recorder.port}",
        "adapters.kafka.frame_s_max": 5,
        "topic_defaults.partitions_max": 2_000,
        "log.level": "warning",
    }
    with Gateway(tmp_path / "data", settings) as gateway:
        frames = record(recorder, gateway)
        assert len({frame[4:6] for frame in frames}) >= 15, "too few APIs were recorded"
        throw_many(gateway, frames, count=count)


def test_faulty_frames_harm_nobody_else(tmp_path: Path, recorder: Recorder) -> None:
    fuzzed(tmp_path, recorder, count=FRAMES)


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_a_million_faulty_frames_harm_nobody_else(tmp_path: Path, recorder: Recorder) -> None:
    fuzzed(tmp_path, recorder, count=FRAMES_SOAK)
