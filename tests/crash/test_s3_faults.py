"""Bucket and database on bad days: nothing is lost, nothing is acknowledged that is not there.

The gateway is never restarted while they are away: it waits, refuses in time, and goes on.
"""

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from unittest.mock import patch

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.crash.load import Load, check_dense, check_kept, check_once, read_all
from tests.crash.s3_gateways import Gate, gated, lose_disk, new_database, s3_settings
from tests.support.gateway import Gateway
from tests.support.s3_proxy import (
    Answer,
    Cut,
    CutBody,
    Fault,
    FlipBody,
    FlipSent,
    Hang,
    IgnoreRange,
    LoseAnswer,
    OtherHeaders,
    S3Proxy,
    SlowBody,
)
from tests.support.s3_servers import S3Server, versitygw
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

PARTITIONS = 3
_WRONG_CHECKSUM = OtherHeaders({"etag": f'"{"0" * 32}"', "x-amz-checksum-crc32c": "AAAAAA=="})
PROGRESS_S_MAX = 180
REFUSE_AFTER_MS = 500

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("s3-faults")]


@dataclass
class GatewayOnS3:
    """A gateway between a bucket and a database that can both be taken away."""

    gateway: Gateway
    bucket: S3Proxy
    database: Gate


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory, postgres_url: str) -> Iterator[GatewayOnS3]:
    folder = tmp_path_factory.mktemp("setup")
    with (
        versitygw(folder) as server,
        patch.dict(os.environ, server.env),
        new_database(postgres_url, f"d{uuid.uuid4().hex}") as database_url,
        gated(database_url) as (gate, gated_url),
        S3Proxy(server.endpoint_url) as proxy,
        Gateway(folder / "data", _settings(server, proxy, gated_url)) as gateway,
    ):
        yield GatewayOnS3(gateway, proxy, gate)


def _settings(server: S3Server, proxy: S3Proxy, metadata_url: str) -> dict[str, object]:
    found = s3_settings(
        server, server.bucket, endpoint_url=proxy.url, metadata_url=metadata_url
    )
    return {**found, "storage.refuse_after_ms": REFUSE_AFTER_MS}


@pytest.fixture(autouse=True)
def _mended(setup: GatewayOnS3) -> Iterator[None]:
    yield
    setup.bucket.clear()


@pytest.fixture
def loaded(setup: GatewayOnS3) -> Iterator[tuple[str, Load]]:
    """A topic that is written to, and what is checked of it after each test.

    The machine dies at the end: what its caches would have hidden is seen in the bucket.
    """
    gateway = setup.gateway
    pid = gateway.pid
    topic = create_topic(gateway.bootstrap, partitions=PARTITIONS)
    load = Load(gateway.bootstrap, topic, partitions=PARTITIONS, idempotent=True, name="load")
    load.start()
    _wait_for_more(load)
    yield topic, load
    _wait_for_more(load)
    load.finish()
    assert gateway.pid == pid, "it was to go on without a restart"
    gateway.kill()
    lose_disk(gateway, keeps_database=False)
    gateway.restart()
    stored = read_all(gateway.bootstrap, topic, PARTITIONS)
    check_dense(stored, PARTITIONS)
    check_kept(load, stored)
    check_once(load, stored)


def _has(load: Load, count: int) -> bool:
    return len(load.acknowledged) >= count


def _wait_for_more(load: Load) -> None:
    goal = len(load.acknowledged) + 200
    wait_until(partial(_has, load, goal), within_s=PROGRESS_S_MAX, what="acknowledgements")


PUT_FAULTS: list[tuple[Fault, int]] = [
    (Answer(500, "InternalError"), 5),
    (Answer(503, "SlowDown"), 10),
    (Hang(), 2),
    (Cut(), 5),
    (LoseAnswer(), 5),
    (_WRONG_CHECKSUM, 3),
    (FlipSent(at=100), 3),
]


@pytest.mark.parametrize(
    ("fault", "times"), PUT_FAULTS, ids=lambda value: str(value).partition("(")[0]
)
def test_a_put_that_fails_is_made_again(
    setup: GatewayOnS3, loaded: tuple[str, Load], fault: Fault, times: int
) -> None:
    rule = setup.bucket.add(fault, method="PUT", key=".seg", times=times)

    wait_until(lambda: rule.hits >= times, within_s=PROGRESS_S_MAX, what=f"{fault} is met")
    _wait_for_more(loaded[1])


GET_FAULTS: list[tuple[Fault, int]] = [
    (Answer(500, "InternalError"), 3),
    (Answer(503, "SlowDown"), 3),
    (Hang(), 1),
    (CutBody(after=50), 3),
    (SlowBody(bytes_per_s=200_000), 2),
    (FlipBody(at=200), 1),
    (IgnoreRange(surplus_bytes=10), 2),
    (_WRONG_CHECKSUM, 1),
]


@pytest.mark.parametrize(
    ("fault", "times"), GET_FAULTS, ids=lambda value: str(value).partition("(")[0]
)
def test_readers_get_all_of_it_whatever_the_bucket_answers(
    setup: GatewayOnS3, fault: Fault, times: int
) -> None:
    gateway = setup.gateway
    topic = create_topic(gateway.bootstrap, partitions=PARTITIONS)
    load = Load(gateway.bootstrap, topic, partitions=PARTITIONS, idempotent=True, name="load")
    load.start()
    wait_until(partial(_has, load, 1_500), within_s=PROGRESS_S_MAX, what="records to read")
    load.finish()
    gateway.kill()
    lose_disk(gateway, keeps_database=False)
    gateway.restart()  # nothing is cached now
    rule = setup.bucket.add(fault, method="GET", key=".seg", times=times)

    stored = read_all(gateway.bootstrap, topic, PARTITIONS)

    assert rule.hits, "nothing was read from the bucket"
    check_kept(load, stored)
    check_once(load, stored)


def test_while_the_bucket_is_away_nothing_is_acknowledged_and_new_records_are_refused(
    setup: GatewayOnS3, loaded: tuple[str, Load]
) -> None:
    topic, load = loaded
    setup.bucket.go_away()

    _nothing_is_acknowledged(setup.gateway, topic, load)
    setup.bucket.come_back()


def test_while_the_database_is_away_nothing_is_acknowledged_and_new_records_are_refused(
    setup: GatewayOnS3, loaded: tuple[str, Load]
) -> None:
    topic, load = loaded
    setup.database.go_away()

    _nothing_is_acknowledged(setup.gateway, topic, load)
    setup.database.come_back()


def test_both_go_and_come_back_again_and_again(
    setup: GatewayOnS3, loaded: tuple[str, Load]
) -> None:
    for _ in range(3):
        setup.bucket.go_away()
        setup.database.go_away()
        _refused_in_time(setup.gateway, loaded[0])
        setup.database.come_back()
        setup.bucket.come_back()
        _wait_for_more(loaded[1])


def test_connections_to_the_database_that_break_at_any_moment_lose_nothing(
    setup: GatewayOnS3, loaded: tuple[str, Load]
) -> None:
    load = loaded[1]
    for _ in range(30):
        goal = len(load.acknowledged) + 7
        wait_until(partial(_has, load, goal), within_s=PROGRESS_S_MAX, what="acknowledgements")
        setup.database.break_all()


def _nothing_is_acknowledged(gateway: Gateway, topic: str, load: Load) -> None:
    """New records are refused, and once what was on its way is told of nothing more is."""
    _refused_in_time(gateway, topic)

    def stands() -> bool:
        count = len(load.acknowledged)
        _refused_in_time(gateway, topic)
        return len(load.acknowledged) == count

    wait_until(stands, within_s=PROGRESS_S_MAX, what="no more acknowledgements")


def _refused_in_time(gateway: Gateway, topic: str) -> None:
    """A producer that does not wait for ever is told, and its record is not acknowledged."""
    told: list[KafkaError | None] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        told.append(error)

    producer = Producer(
        {"bootstrap.servers": gateway.bootstrap, "message.timeout.ms": 3_000, "log_level": 0}
    )
    producer.produce(topic, b"refused", partition=0, on_delivery=on_delivery)
    assert producer.flush(30) == 0
    assert told[0] is not None, "a record was acknowledged that nobody keeps"
    assert gateway.http("/healthz")[0] == 200, (
        "the node stopped"
    )  # it waits, and serves readers
