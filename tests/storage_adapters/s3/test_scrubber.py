"""The scrub of the bucket: a few GETs a day, each damaged batch counted once."""

import contextlib
from array import array
from functools import partial
from pathlib import Path

import pytest

from storage_adapters.formats.footer import HIGH_SHIFT
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.scrubber import GET_BYTES_MAX, ScrubbedBatch, pieces_of
from tests.support.gateway import Gateway
from tests.support.kafka_wire import METADATA, Connection, batch, text
from tests.support.s3_servers import S3Server
from tests.support.waiting import wait_until

WITHIN_S = 60.0
PAYLOAD = b"a payload that is in the bucket once"
EVERY_SECOND = 86_400
DAMAGED = "a batch in the bucket is damaged"


def row(base_offset: int, position: int, size: int) -> list[int]:
    return [base_offset, 0, position + (size << HIGH_SHIFT), 1 + (7 << HIGH_SHIFT)]


def test_a_get_has_as_many_batches_as_fit() -> None:
    half = GET_BYTES_MAX // 2
    rows = array("q", [*row(0, 64, half), *row(1, 64 + half, half), *row(2, 64 + 2 * half, 99)])

    found = pieces_of(rows)

    assert [[one.base_offset for one in piece] for piece in found] == [[0, 1], [2]]
    assert found[1] == [ScrubbedBatch(64 + 2 * half, 99, 7, 2)]


def test_a_batch_of_several_partitions_is_read_once() -> None:
    rows = array("q", [*row(5, 200, 50), *row(0, 64, 80), *row(9, 64, 80)])
    assert [one.position for one in pieces_of(rows)[0]] == [64, 200]


def test_a_batch_larger_than_a_get_is_read_alone() -> None:
    big = 2 * GET_BYTES_MAX
    rows = array("q", [*row(0, 64, big), *row(1, 64 + big, 99)])
    assert [len(piece) for piece in pieces_of(rows)] == [1, 1]


def test_its_cost_is_bounded_by_default() -> None:
    config = S3Config(bucket="abc")
    assert config.scrub_gets_per_day * 30 * 0.4 / 1_000_000 < 0.01  # dollars a month at Amazon


class ScrubbedGateway(Gateway):
    """A gateway over S3 whose scrub reads a piece a second."""

    def __init__(
        self, data_dir: Path, server: S3Server, prefix: str, gets_per_day: int
    ) -> None:
        settings = {
            **server.settings(prefix=prefix),
            "storage.flush_interval_ms": 5,
            "storage.merge_after_ms": 3_600_000,
            "storage.scrub_gets_per_day": gets_per_day,
        }
        super().__init__(data_dir, settings, env=server.env)

    def counted(self, name: str) -> float:
        rows = [line.rsplit(" ", 1) for line in self.http("/metrics")[1].splitlines()]
        return sum(float(row[1]) for row in rows if row[0] == name)


def produce(gateway: Gateway, topic: str, values: list[bytes]) -> None:
    with Connection(gateway.kafka_port) as connection:
        connection.call(METADATA, 4, b"\0\0\0\1" + text(topic) + b"\1")
        for value in values:
            kept = partial(is_kept, connection, topic, value)
            wait_until(kept, within_s=WITHIN_S, what="a record is kept")


def is_kept(connection: Connection, topic: str, value: bytes) -> bool:
    return connection.produce(topic, 0, batch([value]))[0] == 0


def flip_a_byte(server: S3Server, prefix: str) -> None:
    """Change a byte of the payload in the bucket, as a failing disk of its server would."""
    with contextlib.closing(server.client()) as client:
        found = client.list_objects_v2(Bucket=server.bucket, Prefix=f"{prefix}objects/")
        for one in found["Contents"]:
            body = client.get_object(Bucket=server.bucket, Key=one["Key"])["Body"].read()
            at = body.find(PAYLOAD)
            if at >= 0:
                changed = bytearray(body)
                changed[at] ^= 1
                client.put_object(Bucket=server.bucket, Key=one["Key"], Body=bytes(changed))
                return
    pytest.fail("the payload is not in the bucket")


def test_a_flipped_byte_is_found_and_counted_once(server: S3Server, tmp_path: Path) -> None:
    prefix = "flipped/"
    with ScrubbedGateway(tmp_path / "data", server, prefix, EVERY_SECOND) as gateway:
        produce(gateway, "orders", [b"before", PAYLOAD, b"behind"])
        flip_a_byte(server, prefix)

        wait_until(
            lambda: gateway.counted("headgate_s3_scrub_damaged_batches_total") > 0,
            within_s=WITHIN_S,
            what="the damage is counted",
        )
        passes = gateway.counted("headgate_s3_scrub_passes_total")
        wait_until(
            lambda: gateway.counted("headgate_s3_scrub_passes_total") > passes + 1,
            within_s=WITHIN_S,
            what="the scrub goes on, past the damaged object again",
        )

        assert gateway.counted("headgate_s3_scrub_damaged_batches_total") == 1
        assert gateway.counted("headgate_s3_scrubbed_bytes_total") > 0
        wait_until(
            lambda: any(DAMAGED in one for one in gateway.lines),
            within_s=WITHIN_S,
            what="the damage is logged",
        )
        [line] = [one for one in gateway.lines if DAMAGED in one]
        assert "orders-0" in line
        assert "offset=1" in line


def test_none_is_read_where_it_is_off(server: S3Server, tmp_path: Path) -> None:
    with ScrubbedGateway(tmp_path / "data", server, "off/", 0) as gateway:
        produce(gateway, "orders", [b"x"])
        assert gateway.counted("headgate_s3_scrub_gets_total") == 0
