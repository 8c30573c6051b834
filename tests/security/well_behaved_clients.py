"""Well-behaved clients: each does a round of its work and sees that it went right."""

import http.client
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final, Protocol

from tests.interop.sqs.programs.client_api import Refused
from tests.interop.sqs.programs.with_boto3 import Boto3
from tests.security.gateway_with_users import ADMINISTRATOR, PASSWORD, GatewayWithUsers
from tests.support import mqtt_wire as wire
from tests.support.hostile import ADMIN, KAFKA, MQTT, SQS
from tests.support.hostile import sqs as hostile_sqs
from tests.support.kafka_wire import Connection, batch
from tests.support.mqtt_raw import RawClient
from tests.support.mqtt_wire import Kind

NAME: Final = "healthy"

Check = Callable[[], None]


class HasKafka(Protocol):
    """A Kafka server where everybody logs in: ours or another."""

    def kafka(self, who: str) -> Connection:
        """Open a connection of somebody's."""
        ...


class HasMqtt(Protocol):
    """An MQTT server: ours or another."""

    mqtt_port: int


@contextmanager
def _kafka(gateway: HasKafka) -> Iterator[Check]:
    """Produce; nobody else has written between."""
    with gateway.kafka(ADMINISTRATOR) as connection:
        _, first = connection.produce(NAME, 0, batch([b"0"]))
        written = 1

        def check() -> None:
            nonlocal written
            answer = connection.produce(NAME, 0, batch([b"%d" % written]))
            assert answer == (0, first + written)
            written += 1

        yield check


@contextmanager
def _mqtt(gateway: HasMqtt) -> Iterator[Check]:
    """Publish a message and take it."""
    with RawClient(gateway.mqtt_port) as client:
        login = {"username": ADMINISTRATOR, "password": PASSWORD.encode()}
        client.send(wire.connect("healthy", **login))  # type: ignore[arg-type]  # the two
        assert client.receive(Kind.CONNACK).code == 0
        client.subscribe((f"{NAME}/x", 1))
        count = 0

        def check() -> None:
            nonlocal count
            payload = b"%d" % count
            count += 1
            client.send(wire.publish(f"{NAME}/x", payload, qos=1, packet_id=1))
            came = [client.receive(), client.receive()]
            message = next(packet for packet in came if packet.kind is Kind.PUBLISH)
            assert (message.payload, message.dup) == (payload, False)
            client.send(wire.ack(Kind.PUBACK, message.packet_id))

        yield check


@contextmanager
def _sqs(gateway: GatewayWithUsers) -> Iterator[Check]:
    """Send a message, receive and delete it; make again what hostile clients delete."""
    api = Boto3(gateway.endpoint_of(ADMINISTRATOR))
    count = 0

    def check() -> None:
        nonlocal count
        for name in hostile_sqs.QUEUES if count % 20 == 0 else ():
            kind = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
            with suppress(Refused):  # it is there, with other attributes
                api.call("CreateQueue", QueueName=name, Attributes=kind)
        count += 1
        api.call("SendMessage", QueueUrl=NAME, MessageBody=f"{count}")
        found = api.call("ReceiveMessage", QueueUrl=NAME, WaitTimeSeconds=5)
        [message] = found["Messages"]
        assert message["Body"] == f"{count}"
        api.call("DeleteMessage", QueueUrl=NAME, ReceiptHandle=message["ReceiptHandle"])

    try:
        yield check
    finally:
        api.close()


@contextmanager
def _admin(gateway: GatewayWithUsers) -> Iterator[Check]:
    """Ask the admin endpoint, and produce."""
    with _kafka(gateway) as produce:

        def check() -> None:
            assert gateway.admin("GET", f"topics/{NAME}") == http.client.OK
            produce()

        yield check


HEALTHY: Final[Mapping[str, Callable[[Any], AbstractContextManager[Check]]]] = {
    KAFKA: _kafka,
    MQTT: _mqtt,
    SQS: _sqs,
    ADMIN: _admin,
}
