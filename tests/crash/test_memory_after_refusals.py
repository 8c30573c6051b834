"""Memory after refusals: what a node refuses, it does not keep.

A process with the collector as in production gets many requests of a kind that it refuses, each of
0.9 MB or more, and must be back near its idle size soon after the last. The kinds of a protocol
share a process, which is as large before each as the one before has left it.
"""

import gzip
import struct
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from crc32c import crc32c

from gateway.model import ATTRIBUTES_AT, CRC_AT
from gateway.records.compression import GZIP, LZ4, SNAPPY, ZSTD, compress
from tests.support import kafka_wire, mqtt_wire, sqs_raw
from tests.support.gateway import Gateway
from tests.support.mqtt_gateway import MqttGateway
from tests.support.mqtt_raw import RawClient
from tests.support.mqtt_wire import Kind
from tests.support.process_usage import resident_bytes
from tests.support.sqs_gateway import SqsGateway
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

MIB: Final = 1_048_576
GROWTH_BYTES_MAX: Final = 64 * MIB
SOON_S: Final = 30
VERSION: Final = 7  # of Produce: the first that takes zstd; the request is that of 3
# Kept, 200 are nearly three times the growth that is allowed.
HOW_OFTEN = pytest.mark.parametrize(
    "count",
    [pytest.param(200, id="often"), pytest.param(500, id="soak", marks=pytest.mark.soak)],
)
BOMB_BYTES: Final = 24 * MIB  # decompressed: above what a compacted topic takes

Refuse = Callable[[], None]


def refuse_many(gateway: Gateway, refuse: Refuse, *, count: int) -> None:
    """Make the node refuse, and wait until its memory is near the former level."""
    refuse()  # imports a codec, makes a topic known
    idle = resident_bytes(gateway.pid)
    for _ in range(count):
        refuse()
    wait_until(
        lambda: resident_bytes(gateway.pid) <= idle + GROWTH_BYTES_MAX,
        within_s=SOON_S,
        what=f"{resident_bytes(gateway.pid):,} bytes to be near {idle:,} again",
    )


# Kafka.


def sealed(batch: bytes) -> bytes:
    """Return a batch with the CRC that its bytes have."""
    out = bytearray(batch)
    struct.pack_into(">I", out, CRC_AT, crc32c(batch[ATTRIBUTES_AT:]))
    return bytes(out)


def packed(codec: int, payload: bytes) -> bytes:
    """Return an intact batch that claims to hold one record, packed by ``codec``."""
    front = bytearray(kafka_wire.batch([b""])[:61])
    struct.pack_into(">i", front, 8, 61 - 12 + len(payload))
    struct.pack_into(">h", front, ATTRIBUTES_AT, codec)
    return sealed(bytes(front) + payload)


def bad_crc() -> bytes:
    batch = bytearray(kafka_wire.batch([bytes(900_000)]))
    batch[-1] ^= 1
    return bytes(batch)


def wrong_count() -> bytes:
    batch = bytearray(kafka_wire.batch([bytes(900_000)]))
    struct.pack_into(">i", batch, 57, 2)
    return sealed(bytes(batch))


KAFKA: Final = {
    "a wrong CRC": ("", 1, bad_crc),
    "a wrong count": ("", 1, wrong_count),
    "too large": ("", 1, lambda: kafka_wire.batch([bytes(3 * MIB)])),
    "too old": ("", 1, lambda: kafka_wire.batch([bytes(900_000)], timestamp_ms=1)),
    "no such topic": ("nosuch", 1, lambda: kafka_wire.batch([bytes(900_000)])),
    "no such partition, acks=0": ("", 0, bad_crc),
    "no key": ("compacted", 1, lambda: kafka_wire.batch([bytes(900_000)])),
    "a bomb of gzip": ("compacted", 1, lambda: packed(GZIP, gzip.compress(bytes(BOMB_BYTES)))),
    "a bomb of lz4": ("compacted", 1, lambda: packed(LZ4, compress(LZ4, bytes(BOMB_BYTES)))),
    "a bomb of zstd": ("compacted", 1, lambda: packed(ZSTD, compress(ZSTD, bytes(BOMB_BYTES)))),
    "a bomb of snappy": (
        "compacted", 1, lambda: packed(SNAPPY, compress(SNAPPY, bytes(BOMB_BYTES))),
    ),
    "zeros for queued ones": ("queue", 1, lambda: packed(ZSTD, compress(ZSTD, bytes(15 * MIB)))),
    "zeros for records": ("compacted", 1, lambda: packed(ZSTD, compress(ZSTD, bytes(15 * MIB)))),
}  # fmt: skip


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("kafka")
    with Gateway(folder / "data", {"topic_defaults.auto_create": "false"}) as gateway:
        create_topic(
            gateway.bootstrap,
            name="plain",
            configs={"message.timestamp.before.max.ms": "1000000"},
        )
        create_topic(gateway.bootstrap, name="compacted", configs={"cleanup.policy": "compact"})
        create_topic(gateway.bootstrap, name="delayed", configs={"delay.enable": "true"})
        yield gateway


@HOW_OFTEN
@pytest.mark.parametrize("kind", KAFKA)
def test_a_refused_batch_by_kafka_is_freed(kafka: Gateway, kind: str, count: int) -> None:
    topic, acks, make = KAFKA[kind]
    batch = make()
    body = kafka_wire.produce_body([(topic or "plain", 0, batch)], acks=acks)

    def refuse() -> None:
        if acks:
            ((code, _),) = kafka_wire.produce_errors(
                connection.call(kafka_wire.PRODUCE, VERSION, body)
            )
            assert code != 0
            return
        with kafka_wire.Connection(kafka.kafka_port) as once:
            once.socket.sendall(kafka_wire.request(kafka_wire.PRODUCE, VERSION, 1, body))
            with pytest.raises(ConnectionError):
                once.read()

    with kafka_wire.Connection(kafka.kafka_port) as connection:
        # To inflate 24 MiB takes the node 0.1 s.
        refuse_many(kafka, refuse, count=min(count, 100) if "gzip" in kind else count)


# MQTT.

PAYLOAD: Final = bytes(900_000)


@pytest.fixture(scope="module")
def mqtt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqttGateway]:
    folder = tmp_path_factory.mktemp("mqtt")
    settings = {
        "adapters.mqtt.acl": '[{effect="deny",action="publish",filter="denied/#"}]',
        "adapters.mqtt.retained_bytes_max": MIB,
        "adapters.mqtt.routes": (
            '[{filter="small/#",topic="small"},{filter="#",topic="mqtt"}]'
        ),
    }
    with MqttGateway(folder / "data", settings) as gateway:
        with gateway.client() as client:  # 0.9 of the 1 MiB that may be retained
            client.connect()
            client.publish("first", PAYLOAD, qos=1, retain=True)
        small = ConfigResource(ConfigResource.Type.TOPIC, "small")
        small.add_incremental_config(
            ConfigEntry(
                "max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET
            )
        )
        admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
        admin.incremental_alter_configs([small])[small].result(30)
        yield gateway


@HOW_OFTEN
@pytest.mark.parametrize("version", [mqtt_wire.V3_1_1, mqtt_wire.V5])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("topic", ["denied/a", "small/a", "retained/a"])
def test_a_refused_publish_by_mqtt_is_freed(
    mqtt: MqttGateway, topic: str, qos: int, version: int, count: int
) -> None:
    packet = mqtt_wire.publish(
        topic, PAYLOAD, qos=qos, packet_id=1, retain=topic == "retained/a", version=version
    )

    def refuse() -> None:
        with mqtt.client(version=version) as client:
            client.connect()
            client.send(packet)
            if version == mqtt_wire.V5:
                assert client.receive().code >= 0x80
            elif topic != "denied/a":
                client.until_closed()  # 3.1.1 has no other word for it
            else:
                assert client.receive().kind in {Kind.PUBACK, Kind.PUBREC}

    refuse_many(mqtt, refuse, count=count)


@HOW_OFTEN
@pytest.mark.parametrize(
    "packet",
    [
        mqtt_wire.packet(Kind.PUBLISH, b"\0\2\xff\xff\0" + PAYLOAD),
        mqtt_wire.publish("a", bytes(2 * MIB)),
        mqtt_wire.publish("a/#", PAYLOAD),
        mqtt_wire.packet(Kind.SUBSCRIBE, PAYLOAD, flags=2),
    ],
    ids=["malformed", "too large", "wildcard", "filters"],
)
def test_a_packet_that_closes_is_freed(mqtt: MqttGateway, packet: bytes, count: int) -> None:
    def refuse() -> None:
        with mqtt.client() as client:
            client.connect()
            client.send(packet)
            client.until_closed()

    refuse_many(mqtt, refuse, count=count)


# SQS.


@pytest.fixture(scope="module")
def sqs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsGateway]:
    with SqsGateway(tmp_path_factory.mktemp("sqs") / "data") as gateway:
        yield gateway


def entries(count: int, size: int) -> list[dict[str, str]]:
    return [{"Id": str(n), "MessageBody": "x" * size} for n in range(count)]


SQS: Final[dict[str, tuple[str, dict[str, object]]]] = {
    "too large": ("SendMessage", {"MessageBody": "x" * 1_048_577}),
    "characters": ("SendMessage", {"MessageBody": "x" * 900_000 + "\x01"}),
    "an attribute": (
        "SendMessage",
        {"MessageBody": "x" * 900_000, "MessageAttributes": {"a": {"DataType": "No"}}},
    ),
    "a batch": ("SendMessageBatch", {"Entries": entries(10, 110_000)}),
    "its entries": ("SendMessageBatch", {"Entries": [*entries(9, 100_000), {"Id": "9"}]}),
    "no queue": ("SendMessage", {"MessageBody": "x" * 900_000, "QueueUrl": "http://a/0/no"}),
    "no action": ("Nothing", {"MessageBody": "x" * 900_000}),
}  # fmt: skip


@HOW_OFTEN
@pytest.mark.parametrize("kind", SQS)
def test_a_refused_request_by_sqs_is_freed(sqs: SqsGateway, kind: str, count: int) -> None:
    action, params = SQS[kind]
    with sqs_raw.JsonClient(sqs.sqs_port) as client:
        url = client.made("jobs")

        def refuse() -> None:
            with pytest.raises(sqs_raw.Refused):
                client.call(action, **{"QueueUrl": url, **params})

        refuse_many(sqs, refuse, count=count)


# What the log has taken, and its readers cannot decode.


@HOW_OFTEN
def test_what_cannot_be_decoded_for_a_receiver_is_freed(sqs: SqsGateway, count: int) -> None:
    batch = packed(ZSTD, compress(ZSTD, bytes(15 * MIB)))
    body = kafka_wire.produce_body([("mqtt", 0, batch)])
    with (
        RawClient(sqs.mqtt_port) as subscriber,
        kafka_wire.Connection(sqs.kafka_port) as producer,
    ):
        subscriber.connect()
        subscriber.subscribe(("#", 1))

        def append() -> None:
            answer = producer.call(kafka_wire.PRODUCE, VERSION, body)
            assert kafka_wire.produce_errors(answer)[0][0] == 0
            subscriber.ping()

        refuse_many(sqs, append, count=count)
