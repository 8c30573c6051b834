"""A gateway with users, queues and routes, and its clients: one topic, reached by each protocol."""

import asyncio
import http.client
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self
from uuid import uuid4

from confluent_kafka import KafkaError

from gateway.auth.access_keys import AccessKeys
from gateway.auth.users import StoredUsers
from gateway.metadata.sql import SqlMetadata
from tests.interop.sqs.programs.client_api import Endpoint, Refused
from tests.interop.sqs.programs.with_boto3 import Boto3
from tests.support.kafka_wire import METADATA, Connection, batch, text
from tests.support.live_kernel import CHEAP
from tests.support.mqtt_raw import RawClient
from tests.support.mqtt_wire import Kind, connect, publish
from tests.support.sqs_gateway import SqsGateway

ANONYMOUS: Final = "anonymous"
ADMINISTRATOR: Final = "root"
SASL_HANDSHAKE: Final = 17
DESCRIBE_ACLS: Final = 29
SASL_AUTHENTICATE: Final = 36
USERS: Final = (ADMINISTRATOR, "ada", "bob")
PASSWORD: Final = "sesame"
REFUSED: Final = {0x86, 0x87}  # CONNACK and PUBACK of MQTT 5.0: a bad password, not authorized


class GatewayWithUsers(SqsGateway):
    """See the module. ``names`` are topics, which are queues and the targets of MQTT routes."""

    def __init__(
        self, data_dir: Path, names: tuple[str, ...], settings: Mapping[str, object]
    ) -> None:
        queues = ", ".join(f'{{name = "{name}"}}' for name in names)
        routes = ", ".join(f'{{filter = "{name}/#", topic = "{name}"}}' for name in names)
        super().__init__(
            data_dir,
            {"queues": f"[{queues}]", "adapters.mqtt.routes": f"[{routes}]", **settings},
        )

    def start(self, *, within_s: float = 60.0) -> Self:
        """Start it with its users, who have a password and a key each."""
        if not self.data_dir.exists():
            self.data_dir.mkdir(parents=True)
            asyncio.run(_add_users(self.data_dir))
        super().start(within_s=within_s)
        return self

    # --- the admin endpoint

    def admin(
        self, method: str, path: str, body: object = None, *, with_token: bool = True
    ) -> int:
        """Ask the admin endpoint; return the status."""
        return self.admin_answer(method, path, body, with_token=with_token)[0]

    def admin_answer(
        self, method: str, path: str, body: object = None, *, with_token: bool = True
    ) -> tuple[int, str]:
        """Ask the admin endpoint; return the status and what came with it."""
        token = (self.data_dir / "admin.token").read_text().strip() if with_token else ""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=30)
        try:
            connection.request(
                method,
                f"/v1/{path}",
                body=None if body is None else json.dumps(body),
                headers={"Authorization": f"Bearer {token}"},
            )
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def rule(self, effect: str, principal: str, resource: str, pattern: str, name: str) -> None:
        """Add a rule for every operation."""
        body = {
            "effect": effect,
            "operation": "all",
            "resource": resource,
            "pattern": pattern,
            "name": name,
            "principal": principal,
        }
        assert self.admin("POST", "rules", body) == http.client.CREATED

    def counted(self, name: str, labels: str) -> float:
        """Return the sum of a metric over the rows that have these labels."""
        rows = [line.rsplit(" ", 1) for line in self.http("/metrics")[1].splitlines()]
        return sum(
            float(row[1]) for row in rows if row[0].startswith(name) and labels in row[0]
        )

    # --- Kafka

    def lets_kafka_in(self) -> bool:
        """Say whether a client that does not log in is answered."""
        try:
            with Connection(self.kafka_port, timeout_s=30) as connection:
                return bool(connection.call(METADATA, 1, b"\xff\xff\xff\xff"))
        except (OSError, AssertionError):
            return False

    def kafka(self, who: str) -> Connection:
        """Open a connection of somebody's, by SASL PLAIN."""
        connection = Connection(self.kafka_port)
        if who != ANONYMOUS:
            connection.call(SASL_HANDSHAKE, 1, text("PLAIN"))
            token = f"\0{who}\0{PASSWORD}".encode()
            answer = connection.call(
                SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token
            )
            assert answer[:2] == b"\0\0", "wrong password"
        return connection

    def may_produce(self, who: str, topic: str) -> bool:
        """Write to a topic by Kafka; say whether that was allowed."""
        with self.kafka(who) as connection:
            code, _ = connection.produce(topic, 0, batch([b"x"]))
        assert code in {0, KafkaError.TOPIC_AUTHORIZATION_FAILED}, code
        return not code

    def may_administer(self, who: str) -> bool:
        """Ask for all ACLs, an operation of the cluster; say whether that was allowed."""
        any_type, no_name, any_pattern = b"\1", b"\xff\xff", b"\1"
        any_operation, any_permission = b"\1", b"\1"
        body = any_type + no_name + any_pattern + no_name * 2 + any_operation + any_permission
        with self.kafka(who) as connection:
            _, code = struct.unpack_from(">ih", connection.call(DESCRIBE_ACLS, 1, body))
        assert code in {0, KafkaError.CLUSTER_AUTHORIZATION_FAILED}, code
        return not code

    # --- MQTT

    def may_publish(self, who: str, topic: str) -> bool:
        """Publish below a topic's route at QoS 1; say whether that was allowed."""
        user = None if who == ANONYMOUS else who
        with RawClient(self.mqtt_port) as client:
            client.send(
                connect(
                    f"c-{uuid4()}",
                    username=user,
                    password=None if user is None else PASSWORD.encode(),
                )
            )
            code = client.receive(Kind.CONNACK).code
            if code == 0:
                client.send(publish(f"{topic}/x", b"x", qos=1, packet_id=1))
                code = client.receive(Kind.PUBACK).code
        assert code == 0 or code in REFUSED, f"{code:#x}"
        return code == 0

    # --- SQS

    def may_send(self, who: str, queue: str) -> bool:
        """Send to a queue; say whether that was allowed."""
        api = Boto3(self.endpoint_of(who))
        code = ""
        try:
            api.call("SendMessage", QueueUrl=queue, MessageBody="x")
        except Refused as error:
            code = error.code
        finally:
            api.close()
        assert code in {"", "AccessDenied", "InvalidClientTokenId"}, code
        return not code

    def endpoint_of(self, who: str) -> Endpoint:
        """Return where somebody's requests go, signed with a key that is known here or not."""
        if who == ANONYMOUS:
            return self.endpoint
        return Endpoint(self.endpoint.url, key_id=_key_id(who), secret=PASSWORD)


def _key_id(user: str) -> str:
    return f"KEYOF{user.upper()}"


async def _add_users(data_dir: Path) -> None:
    """Make users as a Kafka client does, one of them an administrator: login is not required."""
    metadata = SqlMetadata("sqlite", data_dir=data_dir)
    await metadata.open()
    users = StoredUsers(metadata)
    users.iterations = CHEAP
    await users.load()
    keys = AccessKeys(metadata)
    for name in USERS:
        await users.put_user(name, PASSWORD)
        await keys.add(name, key_id=_key_id(name), secret=PASSWORD)
    credentials = users.credentials(ADMINISTRATOR)
    await metadata.put_user(ADMINISTRATOR, credentials, administers=True)
    await users.close()
    await metadata.close()
