"""A start on a full disk: what is there can be read, deletes make room, and appends go on then."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.crash.load import read_all
from tests.support.gateway import Gateway
from tests.support.kafka_wire import Connection, batch
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk"),
]

SEGMENT_BYTES = 4 << 20
SETTINGS = {"storage.segment_bytes": SEGMENT_BYTES, "storage.reserve_bytes": SEGMENT_BYTES // 2}
VALUE = bytes(100_000)
COUNT = 30
STORAGE_ERROR = 56  # KAFKA_STORAGE_ERROR, which clients retry


@pytest.fixture
def gateway(small_disk: Path) -> Iterator[Gateway]:
    with Gateway(small_disk / "data", SETTINGS) as running:
        yield running


def fill_up(folder: Path) -> None:
    """Leave no byte of the disk to anybody."""
    with (folder / "others").open("wb", buffering=0) as file:
        for size_bytes in (1 << 20, 4_096, 1):
            with suppress(OSError):  # there is no more room for so many
                while file.write(bytes(size_bytes)):
                    pass


def produce(connection: Connection, topic: str, number: int) -> int:
    """Append one record; return the error code."""
    return connection.produce(topic, 0, batch([b"%d " % number + VALUE]))[0]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_start_on_a_full_disk_reads_and_deletes(
    gateway: Gateway, small_disk: Path, end: str
) -> None:
    kept, goes = create_topic(gateway.bootstrap), create_topic(gateway.bootstrap)
    reserve = gateway.data_dir / "reserve"
    with Connection(gateway.kafka_port) as connection:
        for number in range(COUNT):
            assert produce(connection, kept, number) == produce(connection, goes, number) == 0
    assert reserve.exists()
    getattr(gateway, end)()
    fill_up(small_disk)

    gateway.restart()

    assert not reserve.exists()
    assert any("disk is full" in line and str(reserve) in line for line in gateway.lines)
    assert len(read_all(gateway.bootstrap, kept, 1)) == COUNT
    acknowledged = COUNT
    with Connection(gateway.kafka_port) as connection:
        while (code := produce(connection, kept, acknowledged)) == 0:
            acknowledged += 1  # after a kill the log has room of its own
            assert acknowledged < 20 * COUNT
        assert code == STORAGE_ERROR
        admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
        admin.delete_topics([goes])[goes].result(30)
        (small_disk / "others").unlink()
        wait_until(
            lambda: produce(connection, kept, acknowledged) == 0,
            within_s=60,
            what="appends to go on",
        )
    assert len(read_all(gateway.bootstrap, kept, 1)) == acknowledged + 1
