"""One log, three protocols: SQS to a Kafka consumer and back, MQTT to a queue on its topic."""

import asyncio
import json
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.interop.mqtt.programs import link
from tests.interop.mqtt.programs.link import V5, Endpoint, Properties
from tests.interop.mqtt.programs.with_paho import PahoLink
from tests.interop.sqs.calls import arn_of, bodies, counts, delete, look, made, send, take
from tests.interop.sqs.programs.with_boto3 import Boto3
from tests.interop.sqs.scenario import ATTRIBUTES, UNICODE
from tests.support.sqs_gateway import SqsGateway
from tests.support.sqs_target import OWN, Target
from tests.support.topics import create_topic

pytestmark = [
    pytest.mark.interop,
    pytest.mark.xdist_group("sqs-interop"),
    # Sockets that paho leaves to the garbage collector are its own affair.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    OWN,
]

ANSWER_S_MAX = 60.0
LONG_POLL_S = 20
DELAY_S = 3  # what is not delayed is received before
UPKEEP_S = 8  # a queue's upkeep has come by


@pytest.fixture
def api(target: Target) -> Iterator[Boto3]:
    """A client of the SQS endpoint."""
    client = Boto3(target.endpoint)
    yield client
    client.close()


@pytest.fixture
def gateway(target: Target) -> SqsGateway:
    """The gateway, for its other endpoints."""
    assert target.gateway is not None
    return target.gateway


def records(gateway: SqsGateway, topic: str, count: int) -> list[Message]:
    """Consume the topic's only partition from offset 0."""
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    deadline = time.monotonic() + ANSWER_S_MAX
    came: list[Message] = []
    while len(came) < count and time.monotonic() < deadline:
        record = consumer.poll(0.2)
        if record is not None:
            assert record.error() is None
            came.append(record)
    consumer.close()
    assert len(came) == count
    return came


def produce(
    gateway: SqsGateway, topic: str, *given: dict[str, object], **config: object
) -> None:
    producer = Producer({"bootstrap.servers": gateway.bootstrap, **config})
    for record in given:
        producer.produce(topic, partition=0, **record)
    assert producer.flush(ANSWER_S_MAX) == 0


def test_a_queue_is_a_topic_that_kafka_reads_from_its_start(
    gateway: SqsGateway, api: Boto3, stem: str
) -> None:
    url = made(api, stem)
    send(api, url, UNICODE, MessageAttributes=ATTRIBUTES)
    for n in range(3):
        send(api, url, f"{n}", MessageGroupId=f"tenant{n}")
    delete(api, url, *take(api, url, 4))

    found = records(gateway, stem, 4)  # deleted from the queue, not from the log
    assert [record.value().decode() for record in found] == [UNICODE, "0", "1", "2"]
    assert [record.key() for record in found] == [None, b"tenant0", b"tenant1", b"tenant2"]
    headers = dict(found[0].headers() or [])
    assert headers["text"] == ATTRIBUTES["text"]["StringValue"].encode()
    assert headers["bytes"] == ATTRIBUTES["bytes"]["BinaryValue"]
    assert headers["custom.bytes"] == ATTRIBUTES["custom.bytes"]["BinaryValue"]


def test_a_fifo_queue_keeps_its_order_and_groups_in_the_log(
    gateway: SqsGateway, api: Boto3, stem: str
) -> None:
    url = made(api, f"{stem}.fifo", FifoQueue="true")
    for n in range(6):
        given = {
            "MessageGroupId": "ab"[n % 2],
            "MessageDeduplicationId": f"d{n // 2 * 2}{n % 2}",
        }
        send(api, url, f"{n}", **given)
    send(api, url, "twice", MessageGroupId="a", MessageDeduplicationId="d00")

    found = records(gateway, f"{stem}.fifo", 6)
    assert [record.value() for record in found] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert [record.key() for record in found] == [b"a", b"b"] * 3


def test_kafka_records_come_to_sqs_receivers(
    gateway: SqsGateway, api: Boto3, stem: str
) -> None:
    url = made(api, stem)
    headers = [("text", "\u2603".encode()), ("trace", b"1")]
    produce(gateway, stem, {"key": b"tenant", "value": UNICODE.encode(), "headers": headers})

    [message] = take(api, url)
    assert message["Body"] == UNICODE
    assert message["Attributes"]["MessageGroupId"] == "tenant"
    shown = {name: one["StringValue"] for name, one in message["MessageAttributes"].items()}
    assert (shown["text"], shown["trace"]) == ("\u2603", "1")
    delete(api, url, message)
    assert counts(api, url) == [0, 0, 0]


def test_a_waiting_receive_wakes_for_a_kafka_record(
    gateway: SqsGateway, api: Boto3, stem: str
) -> None:
    url = made(api, stem)
    began_s = time.monotonic()
    waiting = api.start("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=LONG_POLL_S)
    counts(api, url)
    produce(gateway, stem, {"value": b"wakes"})

    assert bodies(waiting.result(25)["Messages"]) == ["wakes"]
    assert time.monotonic() - began_s < LONG_POLL_S


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_each_record_of_a_compressed_batch_is_a_message(
    gateway: SqsGateway, api: Boto3, stem: str, compression: str
) -> None:
    url = made(api, stem)
    given: list[dict[str, object]] = [{"value": b"again and again %d" % n} for n in range(20)]
    produce(gateway, stem, *given, **{"compression.type": compression, "linger.ms": 50})

    came = take(api, url, 20)
    assert sorted(bodies(came)) == sorted(f"again and again {n}" for n in range(20))


@pytest.mark.parametrize(
    ("order", "compression", "suffix"),
    [
        ("dabc", "none", ""),
        ("abcd", "lz4", ""),
        ("abd", "none", ".fifo"),
        ("dad", "zstd", ".fifo"),
        ("adbdc", "gzip", ""),
        ("adbdc", "none", ".fifo"),
    ],
)
def test_records_of_one_batch_of_which_some_are_delayed(  # noqa: PLR0917
    gateway: SqsGateway, api: Boto3, stem: str, suffix: str, compression: str, order: str
) -> None:
    """Due messages come at once and in order, the others at their time; each once."""
    topic = create_topic(
        gateway.bootstrap, configs={"delay.enable": "true"}, name=f"{stem}{suffix}"
    )
    url = made(api, topic, **({"FifoQueue": "true"} if suffix else {}))
    due_s = time.time() + DELAY_S
    header = ("deliver-at", str(int(due_s * 1_000)).encode())
    given: list[dict[str, object]] = [
        {
            "key": b"group",
            "value": f"{letter}{n}".encode(),
            "headers": [header] if letter == "d" else [],
        }
        for n, letter in enumerate(order)
    ]
    config = {"linger.ms": 200, "compression.type": compression, "enable.idempotence": True}
    produce(gateway, topic, *given, **config)

    names = [f"{letter}{n}" for n, letter in enumerate(order)]
    for one in (one for one in names if one[0] != "d"):
        [message] = take(api, url)
        assert message["Body"] == one
        delete(api, url, message)
    delayed = [one for one in names if one[0] == "d"]
    for one in delayed:
        [message] = take(api, url)
        assert message["Body"] == one
        delete(api, url, message)
    assert time.time() >= due_s
    assert look(api, url) == []
    assert counts(api, url) == [0, 0, 0]


def test_a_dead_letter_queue_looks_at_batches_of_which_some_wait(
    gateway: SqsGateway, api: Boto3, stem: str
) -> None:
    """Without receivers the queue itself examines its oldest messages, and the node goes on."""
    topic = create_topic(gateway.bootstrap, configs={"delay.enable": "true"}, name=stem)
    dead = arn_of(api, made(api, f"{stem}-dead"))
    policy = json.dumps({"deadLetterTargetArn": dead, "maxReceiveCount": 3})
    url = made(api, topic, RedrivePolicy=policy)
    header = ("deliver-at", str(int((time.time() + 600) * 1_000)).encode())
    given: list[dict[str, object]] = [{"value": b"a"}, {"value": b"d", "headers": [header]}]
    produce(gateway, topic, *given, **{"linger.ms": 200})

    until_s = time.monotonic() + UPKEEP_S
    while time.monotonic() < until_s:
        assert counts(api, url)[2] == 1
        time.sleep(0.5)
    assert bodies(take(api, url)) == ["a"]


def test_what_sqs_cannot_carry_comes_in_a_form_that_it_can(
    gateway: SqsGateway, api: Boto3, stem: str
) -> None:
    """Bytes that are no text, null, more than ten headers: no message is stuck or lost."""
    url = made(api, stem)
    produce(
        gateway,
        stem,
        {"value": b"\xff\x00\xfe"},
        {"value": None},
        {"value": b""},
        {"value": b"many", "headers": [(f"h{n}", b"%d" % n) for n in range(15)]},
        {"value": b"binary header", "headers": [("bytes", b"\xff\x00"), ("none", None)]},
        {"value": b"x" * ((1 << 20) - 1000), "headers": [("large", b"y" * 4000)]},
        {"value": b"plain"},
        **{"message.max.bytes": 4 << 20},
    )
    came = take(api, url, 7)
    assert {"many", "binary header", "plain"} <= set(bodies(came))
    assert all(
        len(message.get("MessageAttributes", {})) <= 11 for message in came
    )  # sqs.headers
    delete(api, url, *came)
    assert look(api, url) == []


def test_a_purged_queue_leaves_the_log_alone(
    gateway: SqsGateway, api: Boto3, stem: str
) -> None:
    url = made(api, stem)
    send(api, url, "kept")
    api.call("PurgeQueue", QueueUrl=url)

    assert look(api, url) == []
    assert [record.value() for record in records(gateway, stem, 1)] == [b"kept"]


def publish(gateway: SqsGateway, client_id: str, *messages: link.Message) -> None:
    async def run() -> None:
        client = PahoLink(Endpoint(gateway.mqtt_port, V5), client_id)
        await client.open(clean=True)
        for message in messages:
            await client.publish(message)
        await client.close()

    asyncio.run(run())


def test_an_mqtt_publish_comes_to_the_queue_on_its_topic(
    gateway: SqsGateway, api: Boto3, stem: str
) -> None:
    """A queue is put on the topic of MQTT's log; its group is the MQTT topic."""
    publish(gateway, stem, link.Message(f"{stem}/before", b"before", 1))
    place = f"--set=node.data_dir={gateway.data_dir}"
    gateway.run_command("queues", "create", "mqtt", place)
    url = api.call("GetQueueUrl", QueueName="mqtt")["QueueUrl"]
    properties = Properties(content_type="text/plain", user=(("a", "2"), ("b", "\u2603")))
    publish(
        gateway,
        stem,
        link.Message(f"{stem}/one", b"hello", 1, properties=properties),
        link.Message(f"{stem}/two", bytes(range(256)), 2),
    )

    first, second = take(api, url, 2)
    assert first["Body"] == "hello"
    assert first["Attributes"]["MessageGroupId"] == f"{stem}/one"
    shown = {name: one.get("StringValue") for name, one in first["MessageAttributes"].items()}
    assert (shown["a"], shown["b"]) == ("2", "\u2603")
    assert shown["content-type"] == "text/plain"
    assert second["Attributes"]["MessageGroupId"] == f"{stem}/two"
    delete(api, url, first, second)
    assert counts(api, url) == [0, 0, 0]
