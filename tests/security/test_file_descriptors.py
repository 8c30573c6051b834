"""Connections leave descriptors for files, and a want of descriptors is retriable."""

import asyncio
import contextlib
import os
import resource
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest

from gateway import descriptors
from gateway.clock import ManualClock
from gateway.descriptors import NoDescriptors
from gateway.testing.storage import Host, append, make_entry
from storage_adapters.formats.segment import decode_segment_header, encode_segment_header
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.config import SegmentLogConfig
from storage_adapters.segment_log.files import SystemFiles
from storage_adapters.segment_log.segment_files import RETRY_MS
from storage_adapters.segment_log.segments import Handles, Segment
from tests.gateway.test_listener import closed, connect, listening
from tests.support.certificates import make_certificate
from tests.support.mqtt_gateway import MqttGateway
from tests.support.waiting import until, wait_until

MIB = 1024 * 1024
DESCRIPTORS = 256
SILENT = 300
STANDARD_STREAMS = 3
STORAGE = {"storage.segment_bytes": 2 * MIB, "storage.reserve_bytes": MIB}


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Let this process open nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.dup(0)
    os.close(probe)
    held: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe + 64, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.dup(0))
        yield
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def nothing_may_be_opened() -> Iterator[None]:
    """As above, whatever other threads of this process close meanwhile.

    The standard streams stay open. With no descriptor at all a ``poll`` of another thread, which
    looks at one or two, would fail.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (STANDARD_STREAMS, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def silent_connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            found.append(one)
        yield found


@pytest.mark.crash
def test_more_silent_connections_than_descriptors_do_not_stop_the_log(tmp_path: Path) -> None:
    limits = {"descriptors_max": f"-n {DESCRIPTORS}"}
    with (
        MqttGateway(tmp_path / "data", STORAGE, **limits) as gateway,
        gateway.client() as publisher,
    ):
        publisher.connect("publisher")
        with silent_connections(gateway.mqtt_port, SILENT):
            for _ in range(16):  # segments are made, closed and settled meanwhile
                publisher.publish("flood", bytes(MIB // 2), qos=1)
            wait_until(
                lambda: (
                    gateway.metric("headgate_peer_faults_total") >= SILENT - DESCRIPTORS // 2
                ),
                within_s=60,
                what="refused connections are counted",
            )
            assert gateway.metric("headgate_connections") <= DESCRIPTORS // 2
        assert gateway.is_running
        assert gateway.metric("headgate_connections_max") == DESCRIPTORS // 2
        with gateway.client() as newcomer:
            newcomer.connect("newcomer")
    refused = [line for line in gateway.lines if "TooManyConnections" in line]
    assert 0 < len(refused) < SILENT // 10


def test_the_soft_limit_is_raised_to_the_hard_one(tmp_path: Path) -> None:
    with MqttGateway(tmp_path / "data", descriptors_max=f"-S -n {DESCRIPTORS}") as gateway:
        assert gateway.metric("headgate_connections_max") > DESCRIPTORS


async def test_a_tls_handshake_has_a_seat_and_gives_it_back(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    trust = ssl.create_default_context(cafile=cert)
    async with listening(tls_cert=cert, tls_key=key, connections_max=2) as listener:
        first, second = await connect(listener), await connect(listener)  # say nothing
        await until(lambda: not listener.has_room())
        third = await connect(listener)
        assert await closed(third)
        assert listener.refused == 1
        first[1].write(b"this is no TLS\r\n\r\n")
        assert await closed(first)
        await until(listener.has_room)
        reader, writer = await connect(listener, trust)
        writer.write(b"a")
        assert await reader.readexactly(3) == b"<a>"
        second[1].close()


async def test_all_listeners_share_what_descriptors_allow() -> None:
    async with listening() as one, listening(shared=one.admission) as other:
        one.admission.connections_max = 1
        first = await connect(one)
        await until(lambda: one.admission.connections_count == 1)
        second = await connect(other)
        assert await closed(second)
        first[1].close()
        await until(lambda: one.admission.connections_count == 0)
        reader, writer = await connect(other)
        writer.write(b"a")
        assert await reader.readexactly(3) == b"<a>"


def segment_at(path: Path) -> Segment:
    header = encode_segment_header(
        data_uuid=UUID(int=1), number=1, previous=0, first_sequence=0,
        incarnation=1, created_unix_ms=0,
    )  # fmt: skip
    path.write_bytes(header)
    return Segment(path, decode_segment_header(header))


def test_an_idle_segment_is_closed_for_one_that_is_to_be_read(tmp_path: Path) -> None:
    handles = Handles(8)
    idle, wanted = segment_at(tmp_path / "idle"), segment_at(tmp_path / "wanted")
    with nothing_may_be_opened():
        counted = descriptors.SHORTAGES.count
        with pytest.raises(NoDescriptors):
            handles.acquire(idle)
        assert descriptors.SHORTAGES.count == counted + 1
    handles.acquire(idle)
    handles.release(idle)
    with no_descriptor_left():
        assert handles.acquire(wanted) >= 0
        assert idle.fd == -1
    handles.release(wanted)
    handles.close()


def test_no_descriptors_is_retriable() -> None:
    assert NoDescriptors.retriable


def test_a_directory_is_synced_once_there_is_a_descriptor_again(tmp_path: Path) -> None:
    others = os.dup(0)
    with ThreadPoolExecutor(1) as executor:
        executor.submit(int).result()  # its thread is there
        with nothing_may_be_opened():
            os.close(others)  # as what an earlier test has left may be, at any time
            counted = descriptors.SHORTAGES.count
            synced = executor.submit(SystemFiles().sync_directory, tmp_path)
            wait_until(
                lambda: descriptors.SHORTAGES.count > counted, within_s=30, what="a shortage"
            )
            assert not synced.done()
        synced.result()


async def fill(log: SegmentLog) -> int:
    """Append until there is no descriptor for another segment; return how many batches are in."""
    for number in range(200):
        done = asyncio.get_running_loop().create_future()
        try:
            log.enqueue([make_entry((1, number), size_bytes=20_000)], done.set_result)
        except NoDescriptors:
            return number
        assert await done is None
    return 200


async def test_an_append_that_needs_a_descriptor_is_refused_and_the_node_goes_on(
    tmp_path: Path,
) -> None:
    clock, host = ManualClock(), Host()
    config = SegmentLogConfig.model_validate({"segment_bytes": MIB, "reserve_bytes": 0})
    log = SegmentLog(config, data_dir=tmp_path, clock=clock)
    await log.open(host)
    with nothing_may_be_opened():
        count = await fill(log)
    assert 0 < count < 200
    assert host.faults == []
    clock.advance(RETRY_MS)
    await append(log, make_entry((1, count), size_bytes=20_000))
    assert log.bounds(1).end == count + 1
    await log.close()
