"""One log, two protocols: paho publishes and librdkafka consumes, and the other way round."""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.interop.mqtt.programs import link
from tests.interop.mqtt.programs.link import V3_1_1, V5, Endpoint, Properties
from tests.interop.mqtt.programs.with_paho import PahoLink
from tests.support.mqtt_target import OWN, Target

pytestmark = [
    pytest.mark.interop,
    pytest.mark.xdist_group("mqtt-interop"),
    # Sockets that paho leaves to the garbage collector are its own affair.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    OWN,
]

LOG = "mqtt"
ANSWER_S_MAX = 90.0


class Reader:
    """Reads the log's only partition from where it ended when this was made."""

    def __init__(self, bootstrap: str) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "allow.auto.create.topics": True,
            }
        )
        partition = TopicPartition(LOG, 0)
        _, end = self.consumer.get_watermark_offsets(partition, timeout=ANSWER_S_MAX)
        self.consumer.assign([TopicPartition(LOG, 0, end)])

    def next(self, stem: str) -> Message:
        """Return the next record whose key begins with ``stem``."""
        deadline = time.monotonic() + ANSWER_S_MAX
        while time.monotonic() < deadline:
            record = self.consumer.poll(0.2)
            if record is None or (record.key() or b"")[: len(stem)] != stem.encode():
                continue
            assert record.error() is None
            return record
        msg = "no record came"
        raise TimeoutError(msg)


@pytest.fixture
def reader(target: Target) -> Iterator[Reader]:
    """A consumer that sees what comes from now on."""
    reader = Reader(target.bootstrap)
    yield reader
    reader.consumer.close()


def publish(target: Target, version: int, client_id: str, *messages: link.Message) -> None:
    async def run() -> None:
        client = PahoLink(Endpoint(target.port, version), client_id)
        await client.open(clean=True)
        for message in messages:
            await client.publish(message)
        await client.close()

    asyncio.run(run())


def received(
    target: Target, stem: str, produce: Callable[[], None], count: int
) -> list[link.Message]:
    """Subscribe to all below ``stem`` at QoS 2, produce, return what comes."""

    async def run() -> list[link.Message]:
        client = PahoLink(Endpoint(target.port, V5), f"{stem}r")
        await client.open(clean=True)
        await client.subscribe(f"{stem}/#", 2)
        await asyncio.to_thread(produce)
        came = [await client.inbox.next() for _ in range(count)]
        await client.close()
        return came

    return asyncio.run(run())


class Produce:
    """Records for the log, sent when called."""

    def __init__(self, target: Target, *records: dict[str, object]) -> None:
        self.bootstrap = target.bootstrap
        self.records = records

    def __call__(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for record in self.records:
            producer.produce(LOG, partition=0, **record)
        assert producer.flush(ANSWER_S_MAX) == 0


def headers(record: Message) -> list[tuple[str, bytes | None]]:
    return list(record.headers() or [])


@pytest.mark.parametrize("version", [V3_1_1, V5], ids=["3.1.1", "5.0"])
def test_the_key_is_the_topic_and_the_value_the_payload(
    target: Target, reader: Reader, stem: str, version: int
) -> None:
    payload = bytes(range(256))
    publish(target, version, stem, link.Message(f"{stem}/a", payload, 1))

    record = reader.next(stem)
    assert (record.key(), record.value()) == (f"{stem}/a".encode(), payload)
    found = dict(headers(record))
    assert found["mqtt.client"] == stem.encode()
    assert "mqtt.topic" not in found  # the key is the topic


def test_an_empty_payload_is_an_empty_value_not_null(
    target: Target, reader: Reader, stem: str
) -> None:
    publish(target, V5, stem, link.Message(f"{stem}/a", b"", 1))
    assert reader.next(stem).value() == b""


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_qos_and_retain_are_headers_when_not_default(
    target: Target, reader: Reader, stem: str, qos: int, *, retain: bool
) -> None:
    publish(target, V3_1_1, stem, link.Message(f"{stem}/a", b"x", qos, retain))

    found = dict(headers(reader.next(stem)))
    assert found.get("mqtt.qos", b"1") == str(qos).encode()  # 1 is the route's default
    assert ("mqtt.retain" in found) == retain


def test_properties_become_headers_in_order(target: Target, reader: Reader, stem: str) -> None:
    properties = Properties(
        content_type="text/plain",
        response_topic="answers/here",
        correlation_data=bytes(range(256)),
        message_expiry_interval=3600,
        user=(("b", "1"), ("a", "2"), ("b", "3"), ("\u00e9", "\u2603"), ("mqtt.qos", "7")),
    )
    before_ms = int(time.time() * 1000)
    publish(target, V5, stem, link.Message(f"{stem}/a", b"x", 1, properties=properties))

    found = headers(reader.next(stem))
    known = dict(found)
    assert known["content-type"] == b"text/plain"
    assert known["reply-to"] == b"answers/here"
    assert known["correlation-id"] == bytes(range(256))
    expires_ms = int(known["expires-at"] or b"0")
    assert 3_590_000 <= expires_ms - before_ms <= 3_610_000
    wanted = [("b", b"1"), ("a", b"2"), ("b", b"3"), ("\u00e9", "\u2603".encode())]
    assert [pair for pair in found if pair in wanted] == wanted
    assert known["mqtt.user.mqtt.qos"] == b"7"


def test_order_is_kept(target: Target, reader: Reader, stem: str) -> None:
    sent = [link.Message(f"{stem}/a", b"%d" % n, 1 + n % 2) for n in range(20)]
    publish(target, V5, stem, *sent)
    assert [reader.next(stem).value() for _ in sent] == [message.payload for message in sent]


def test_a_record_reaches_subscribers_of_its_key(target: Target, stem: str) -> None:
    payload = bytes(range(256))
    produce = Produce(target, {"key": f"{stem}/a", "value": payload})

    [message] = received(target, stem, produce, 1)
    assert (message.topic, message.payload, message.retain) == (f"{stem}/a", payload, False)
    assert message.qos == 1  # the route's default


def test_null_and_empty_values_arrive_empty(target: Target, stem: str) -> None:
    produce = Produce(
        target,
        {"key": f"{stem}/null", "value": None},
        {"key": f"{stem}/empty", "value": b""},
    )
    came = received(target, stem, produce, 2)
    assert [(message.topic, message.payload) for message in came] == [
        (f"{stem}/null", b""),
        (f"{stem}/empty", b""),
    ]


def test_known_headers_become_properties(target: Target, stem: str) -> None:
    given = [
        ("content-type", b"text/plain"),
        ("reply-to", b"answers/here"),
        ("correlation-id", bytes(range(256))),
        ("mqtt.qos", b"2"),
        ("expires-at", str(int(time.time() * 1000) + 3_600_000).encode()),
    ]
    produce = Produce(target, {"key": f"{stem}/a", "value": b"x", "headers": given})

    [message] = received(target, stem, produce, 1)
    assert message.qos == 2
    assert message.properties.content_type == "text/plain"
    assert message.properties.response_topic == "answers/here"
    assert message.properties.correlation_data == bytes(range(256))
    left_s = message.properties.message_expiry_interval
    assert left_s is not None
    assert 3_590 <= left_s <= 3_600


def test_repeated_headers_become_user_properties_in_order(target: Target, stem: str) -> None:
    given = [("b", b"1"), ("a", b"2"), ("b", b"3"), ("", b""), ("\u00e9", "\u2603".encode())]
    produce = Produce(target, {"key": f"{stem}/a", "value": b"x", "headers": given})

    [message] = received(target, stem, produce, 1)
    assert message.properties.user == (
        ("b", "1"), ("a", "2"), ("b", "3"), ("", ""), ("\u00e9", "\u2603"),
    )  # fmt: skip


def test_a_header_that_is_no_text_does_not_stop_its_message(target: Target, stem: str) -> None:
    given = [("binary", b"\xff\x00\xfe"), ("none", None), ("after", b"text")]
    produce = Produce(target, {"key": f"{stem}/a", "value": b"x", "headers": given})

    [message] = received(target, stem, produce, 1)
    assert message.payload == b"x"
    assert ("after", "text") in message.properties.user


def test_the_topic_header_wins_over_the_key(target: Target, stem: str) -> None:
    given = [("mqtt.topic", f"{stem}/by-header".encode())]
    produce = Produce(target, {"key": f"{stem}/by-key", "value": b"x", "headers": given})

    [message] = received(target, stem, produce, 1)
    assert message.topic == f"{stem}/by-header"


def test_records_without_a_usable_topic_are_passed_over(target: Target, stem: str) -> None:
    produce = Produce(
        target,
        {"key": None, "value": b"no key"},
        {"key": b"\xff\xfe", "value": b"not UTF-8"},
        {"key": f"{stem}/#", "value": b"a wildcard"},
        {"key": f"{stem}/a\x00", "value": b"a null character"},
        {"key": f"{stem}/good", "value": b"good"},
    )
    [message] = received(target, stem, produce, 1)
    assert (message.topic, message.payload) == (f"{stem}/good", b"good")


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_reach_subscribers(
    target: Target, stem: str, compression: str
) -> None:
    def produce() -> None:
        producer = Producer(
            {
                "bootstrap.servers": target.bootstrap,
                "compression.type": compression,
                "linger.ms": 50,
            }
        )
        for n in range(20):
            producer.produce(LOG, key=f"{stem}/a", value=b"again and again %d" % n, partition=0)
        assert producer.flush(ANSWER_S_MAX) == 0

    async def run() -> list[bytes]:
        client = PahoLink(Endpoint(target.port, V5), f"{stem}r")
        await client.open(clean=True)
        await client.subscribe(f"{stem}/#", 1)
        await asyncio.to_thread(produce)
        came = [(await client.inbox.next()).payload for _ in range(20)]
        await client.close()
        return came

    assert asyncio.run(run()) == [b"again and again %d" % n for n in range(20)]


def test_an_offline_session_gets_what_kafka_produced(target: Target, stem: str) -> None:
    async def run() -> list[bytes]:
        keeper = PahoLink(Endpoint(target.port, V5), stem)
        await keeper.open(clean=False)
        await keeper.subscribe(f"{stem}/#", 1)
        await keeper.close()
        records: list[dict[str, object]] = [
            {"key": f"{stem}/a", "value": b"%d" % n} for n in range(5)
        ]
        await asyncio.to_thread(Produce(target, *records))
        again = PahoLink(Endpoint(target.port, V5), stem)
        await again.open(clean=False)
        came = [(await again.inbox.next()).payload for _ in range(5)]
        await again.unsubscribe(f"{stem}/#")
        await again.close()
        return came

    assert asyncio.run(run()) == [b"%d" % n for n in range(5)]
