"""Series by topic, queue and group of a running node, as a scrape shows them."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from gateway.certificate_expiry import expiry_unix_s
from tests.support.certificates import make_certificate
from tests.support.gateway import Gateway
from tests.support.sqs_gateway import SqsGateway
from tests.support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("scrape")

LINE = re.compile(r"^(\w+)\{([^}]*)\} (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')
VALUE = b"v" * 100


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsGateway]:
    settings = {
        "metrics.topics_max": 3,
        "metrics.topics": '["t*"]',
        "metrics.queues_max": 1,
        "metrics.groups_max": 1,
    }
    with SqsGateway(tmp_path_factory.mktemp("scrape") / "data", settings) as node:
        yield node


def series(gateway: Gateway, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """Return a metric's values by some of its labels."""
    found = {}
    for metric, text, value in LINE.findall(gateway.http("/metrics")[1]):
        if metric == name:
            known = dict(LABEL.findall(text))
            found[tuple(known[label] for label in labels)] = float(value)
    return found


def command(gateway: Gateway, *arguments: str) -> None:
    gateway.run_command(*arguments, f"--set=node.data_dir={gateway.data_dir}")


def produce(gateway: Gateway, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": gateway.bootstrap})
    for _ in range(count):
        producer.produce(topic, VALUE, partition=0)
    assert producer.flush(30) == 0


def consume(gateway: Gateway, topic: str, group: str, count: int) -> None:
    """Read so many records and commit the position."""
    consumer = Consumer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    read = 0
    while read < count:
        read += len(consumer.consume(count - read, timeout=30))
    consumer.commit(offsets=[TopicPartition(topic, 0, count)], asynchronous=False)
    consumer.close()


def test_topics_count_what_goes_in_and_out_and_the_rest_is_other(gateway: SqsGateway) -> None:
    for number in range(5):
        produce(gateway, f"t{number}", number + 1)
    consume(gateway, "t2", "readers", 3)

    topics = series(gateway, "headgate_topic_records_in_total", "topic")
    assert topics == {("t0",): 1, ("t1",): 2, ("t2",): 3, ("other",): 9}
    read = series(gateway, "headgate_topic_records_out_total", "topic")
    assert read["t2",] >= 3
    size = series(gateway, "headgate_topic_bytes_in_total", "topic")["t2",]
    assert 3 * len(VALUE) < size < 3 * len(VALUE) + 300
    assert series(gateway, "headgate_topic_bytes_out_total", "topic")["t2",] >= size
    assert series(gateway, "headgate_topic_records", "topic")["t2",] == 3
    assert series(gateway, "headgate_topic_bytes", "topic")["t2",] >= size


def test_the_group_furthest_behind_has_a_series_and_the_others_share_one(
    gateway: SqsGateway,
) -> None:
    produce(gateway, "lagging", 10)
    consume(gateway, "lagging", "near", 7)
    consume(gateway, "lagging", "far", 2)

    def lags() -> dict[tuple[str, ...], float]:
        return series(gateway, "headgate_group_lag", "group")

    wait_until(
        lambda: lags() == {("far",): 8, ("other",): 3},
        within_s=60,
        what="the lag of both groups",
    )
    assert (
        series(gateway, "headgate_group_lag_seconds", "group", "topic")["far", "lagging"] >= 0
    )
    assert gateway.metric("headgate_group_positions_left_out") == 0


def test_a_queue_has_depth_age_and_outcomes_and_the_rest_is_other(gateway: SqsGateway) -> None:
    command(gateway, "queues", "create", "first")
    command(gateway, "queues", "create", "second")
    for _ in range(3):
        command(gateway, "queues", "send", "first", "hello")
    command(gateway, "queues", "send", "second", "hello")

    def depth() -> dict[tuple[str, ...], float]:
        found = series(gateway, "headgate_queue_depth", "queue", "state")
        return {labels: value for labels, value in found.items() if labels[1] == "ready"}

    wait_until(
        lambda: depth() == {("first", "ready"): 3, ("other", "ready"): 1},
        within_s=60,
        what="the depth of both queues",
    )
    assert series(gateway, "headgate_queue_oldest_seconds", "queue")["first",] >= 0
    outcomes = series(gateway, "headgate_queue_outcomes_total", "queue", "what")
    assert outcomes["first", "delivered"] == 0


def test_requests_are_timed_by_api(gateway: SqsGateway) -> None:
    produce(gateway, "timed", 1)

    found = series(gateway, "headgate_request_seconds_count", "protocol", "api")
    assert found["kafka", "Produce"] >= 1
    assert found["kafka", "ApiVersions"] >= 1


def test_disk_version_and_process_are_there(gateway: SqsGateway) -> None:
    size = gateway.metric("headgate_disk_size_bytes")
    assert 0 < gateway.metric("headgate_disk_free_bytes") <= size
    assert gateway.metric("headgate_build_info") == 1
    assert gateway.metric("process_open_fds") > 0


def test_a_deleted_topic_loses_its_series(tmp_path: Path) -> None:
    with Gateway(tmp_path / "data", {"metrics.topics_max": 1}) as gateway:
        produce(gateway, "a", 1)
        command(gateway, "topics", "delete", "a", "--yes")
        produce(gateway, "b", 2)
        assert series(gateway, "headgate_topic_records_in_total", "topic") == {("b",): 2}


def test_a_certificate_that_expires_soon_is_a_metric_and_a_warning(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)  # of one day
    settings = {"adapters.kafka.tls_cert": cert, "adapters.kafka.tls_key": key}
    with Gateway(tmp_path / "data", settings) as gateway:
        found = series(gateway, "headgate_certificate_expiry_timestamp_seconds", "listener")
        assert found == {("kafka",): expiry_unix_s(cert)}
        shown = gateway.run_command("status", f"--set=node.data_dir={gateway.data_dir}")
    assert f"warning: the certificate of kafka expires in 0 day(s): {cert}" in shown
