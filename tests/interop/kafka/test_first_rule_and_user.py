"""The first rule and user, created by an anonymous client, do not lock out other clients."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import ACL, ACLOperation, ACLPermissionType, KafkaAdminClient, ResourcePattern
from kafka.admin import NewTopic as PythonTopic
from kafka.admin import ResourceType as PythonType

from tests.support.gateway import Gateway

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("kafka-lock-out")]

WAIT_S = 30


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway without any configuration but its addresses and data directory."""
    with Gateway(tmp_path / "data") as running:
        yield running


def goes_on(gateway: Gateway) -> bool:
    """Create a topic, write, read in a group and delete it, with each client, without a login."""
    bootstrap, name = gateway.bootstrap, f"t-{uuid4()}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1)])[name].result(WAIT_S)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce(name, b"1")
    assert producer.flush(WAIT_S) == 0
    reading = {"group.id": name, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **reading})
    consumer.subscribe([name])
    first = consumer.poll(WAIT_S)
    assert first is not None
    consumer.commit(asynchronous=False)
    consumer.close()
    writer = KafkaProducer(bootstrap_servers=bootstrap)
    writer.send(name, b"2").get(WAIT_S)
    writer.close()
    reader = KafkaConsumer(
        name,
        bootstrap_servers=bootstrap,
        group_id=name,
        auto_offset_reset="earliest",
        consumer_timeout_ms=WAIT_S * 1_000,
    )
    second = next(iter(reader))
    reader.close()
    admin.delete_topics([name])[name].result(WAIT_S)
    return (first.value(), second.value) == (b"1", b"2")


def test_after_the_first_rule_and_user_of_confluent_all_goes_on(gateway: Gateway) -> None:
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    rule = AclBinding(
        ResourceType.TOPIC,
        "guarded",
        ResourcePatternType.LITERAL,
        "User:ada",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    user = UserScramCredentialUpsertion(
        "ada", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192), b"sesame"
    )

    admin.create_acls([rule])[rule].result(WAIT_S)
    admin.alter_user_scram_credentials([user])["ada"].result(WAIT_S)

    assert goes_on(gateway)
    described = admin.describe_user_scram_credentials(["ada"])["ada"].result(WAIT_S)
    assert [info.mechanism for info in described.scram_credential_infos] == [
        ScramMechanism.SCRAM_SHA_256
    ]
    everything = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert admin.delete_acls([everything])[everything].result(WAIT_S) == [rule]
    gateway.kill()
    gateway.restart()
    assert goes_on(gateway)


def test_after_the_first_rule_of_kafka_python_all_goes_on(gateway: Gateway) -> None:
    admin = KafkaAdminClient(bootstrap_servers=gateway.bootstrap)
    guarded = ResourcePattern(PythonType.TOPIC, "guarded")
    rule = ACL("User:ada", "*", ACLOperation.READ, ACLPermissionType.ALLOW, guarded)

    made = admin.create_acls([rule])

    assert not made["failed"], made
    assert goes_on(gateway)
    admin.create_topics([PythonTopic("another", 1, 1)])
    assert "another" in admin.list_topics()
    admin.close()
