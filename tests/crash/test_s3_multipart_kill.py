"""The machine dies while a large object is put in parts: all of it counts, or nothing does."""

import os
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.crash.load import check_dense, patient_producer, read_all
from tests.crash.s3_gateways import lose_disk, s3_settings
from tests.support.gateway import Gateway
from tests.support.s3_proxy import Fault, Hang, LoseAnswer, S3Proxy
from tests.support.s3_servers import S3Server, versitygw
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

RECORD_BYTES = 800_000
COUNT = 6  # of each producer, who has five of them on their way: an object takes ten
PRODUCERS = 2
WITHIN_S = 60
SETTINGS = {
    "storage.flush_interval_ms": 5_000,  # objects close by their size
    "storage.object_bytes": 7 << 20,
    "storage.multipart_bytes": 5 << 20,
}

pytestmark = pytest.mark.crash


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with versitygw(tmp_path_factory.mktemp("s3")) as run, patch.dict(os.environ, run.env):
        yield run


@pytest.mark.parametrize(
    ("faults", "method", "key"),
    [
        ([Hang()], "PUT", "partNumber=2"),
        ([Hang()], "POST", "uploadId="),
        # The object is there then, and no row of it is live.
        ([LoseAnswer(), Hang()], "POST", "uploadId="),
    ],
    ids=["between parts", "before it is an object", "when it is an object"],
)
def test_what_was_put_in_parts_counts_once(
    server: S3Server, tmp_path: Path, faults: list[Fault], method: str, key: str
) -> None:
    with S3Proxy(server.endpoint_url) as proxy:
        settings = s3_settings(server, server.new_bucket(), endpoint_url=proxy.url) | SETTINGS
        with Gateway(tmp_path / "data", settings) as gateway:
            topic = create_topic(gateway.bootstrap)
            producers = [patient_producer(gateway.bootstrap) for _ in range(PRODUCERS)]
            acknowledged: list[int] = []
            rules = [proxy.add(fault, method=method, key=key, times=1) for fault in faults]

            _produce(producers, topic, 0, acknowledged)
            wait_until(
                lambda: rules[-1].hits > 0,
                within_s=WITHIN_S,
                what="the upload is where it is to end",
            )
            assert acknowledged == []
            gateway.kill()
            proxy.clear()
            lose_disk(gateway, keeps_database=True)
            gateway.restart()
            _produce(producers, topic, len(producers) * COUNT, acknowledged)
            assert [producer.flush(WITHIN_S) for producer in producers] == [0] * PRODUCERS

            gateway.kill()
            lose_disk(gateway, keeps_database=True)
            gateway.restart()
            stored = read_all(gateway.bootstrap, topic, 1)
    check_dense(stored, 1)
    numbers = Counter(int(value[:8]) for value in stored.values())
    assert sorted(acknowledged) == sorted(numbers) == list(range(2 * PRODUCERS * COUNT))
    assert set(numbers.values()) == {1}


def _produce(
    producers: list[Producer], topic: str, first: int, acknowledged: list[int]
) -> None:
    """Begin to write; each producer's records are numbered from where the one before ends."""

    def on_delivery(number: int, error: KafkaError | None, _message: Message) -> None:
        assert error is None, error
        acknowledged.append(number)

    for at in range(PRODUCERS * COUNT):
        value = b"%08d" % (first + at) + os.urandom(RECORD_BYTES)
        producer = producers[at // COUNT]
        told = partial(on_delivery, first + at)
        producer.produce(topic, value, partition=0, on_delivery=told)
