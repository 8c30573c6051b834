"""Audit lines: who has changed what, from where, with which result; and refused logins."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.interop.mqtt.programs.secure_paho import SecurePaho
from tests.interop.mqtt.secured import add_user
from tests.interop.sqs.programs.client_api import Endpoint
from tests.interop.sqs.programs.with_boto3 import Boto3
from tests.security.log_lines import logged, wait_logged
from tests.support.sqs_gateway import SqsGateway

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("security-audit")]

USER, PASSWORD = "ada", "right horse"
HERE = "127.0.0.1"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsGateway]:
    folder = tmp_path_factory.mktemp("audit")
    add_user(folder / "data", USER, PASSWORD)
    settings = {
        "log.format": "json",
        "adapters.sqs.anonymous": "never",
        "auth.super_users": f'["{USER}"]',
    }
    with SqsGateway(folder / "data", settings) as running:
        yield running


def kafka(gateway: SqsGateway, *, user: str = USER, password: str = PASSWORD) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": gateway.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }
    )


def done(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(30)


def by_kafka(gateway: SqsGateway, action: str, name: str) -> None:
    line = wait_logged(gateway, "audit", action=action, name=name)
    shown = {key: line[key] for key in ("who", "protocol", "peer", "result")}
    assert shown == {"who": USER, "protocol": "kafka", "peer": HERE, "result": "done"}


def test_topics_by_kafka(gateway: SqsGateway) -> None:
    client = kafka(gateway)
    done(client.create_topics([NewTopic("k-orders", 1, 1)]))
    done(client.create_partitions([NewPartitions("k-orders", 2)]))
    change = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", "k-orders", incremental_configs=[change])
    done(client.incremental_alter_configs([resource]))
    done(client.delete_topics(["k-orders"]))

    for action in ("create", "add_partitions", "alter_configs", "delete"):
        by_kafka(gateway, f"topic.{action}", "k-orders")


def test_a_topic_that_is_only_tried_out_has_no_line(gateway: SqsGateway) -> None:
    client = kafka(gateway)
    done(client.create_topics([NewTopic("k-tried", 1, 1)], validate_only=True))
    done(client.create_topics([NewTopic("k-made", 1, 1)]))
    by_kafka(gateway, "topic.create", "k-made")
    assert not logged(gateway, "audit", name="k-tried")


def test_a_refused_change_has_a_line_with_the_reason(gateway: SqsGateway) -> None:
    client = kafka(gateway)
    with pytest.raises(KafkaException):
        done(client.delete_topics(["k-missing"]))
    line = wait_logged(gateway, "audit", action="topic.delete", name="k-missing")
    assert (line["result"], line["level"]) == ("refused", "warning")
    assert line["detail"].startswith("TopicNotFound")


def test_rules_by_kafka(gateway: SqsGateway) -> None:
    client = kafka(gateway)
    fields = (
        ResourceType.TOPIC,
        "k-ruled",
        ResourcePatternType.LITERAL,
        "User:bob",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    done(client.create_acls([AclBinding(*fields)]))
    done(client.delete_acls([AclBindingFilter(*fields)]))
    text = "allow read on topic literal k-ruled to bob"
    by_kafka(gateway, "rule.add", text)
    by_kafka(gateway, "rule.remove", text)


def test_users_by_kafka(gateway: SqsGateway) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4_096)
    change = UserScramCredentialUpsertion("k-bob", info, b"pass word")
    client = kafka(gateway)
    done(client.alter_user_scram_credentials([change]))
    by_kafka(gateway, "user.alter", "k-bob")


def test_queues_by_sqs(gateway: SqsGateway) -> None:
    api = Boto3(gateway.with_key(USER))
    queue = api.client.create_queue(QueueName="s-orders")["QueueUrl"]
    api.client.set_queue_attributes(QueueUrl=queue, Attributes={"DelaySeconds": "1"})
    api.client.purge_queue(QueueUrl=queue)
    api.client.delete_queue(QueueUrl=queue)
    api.close()
    for action in ("create", "alter", "purge", "delete"):
        line = wait_logged(gateway, "audit", action=f"queue.{action}", name="s-orders")
        shown = {key: line[key] for key in ("who", "protocol", "peer", "result")}
        assert shown == {"who": USER, "protocol": "sqs", "peer": HERE, "result": "done"}


def test_everything_by_the_admin_api(gateway: SqsGateway) -> None:
    place = f"--set=node.data_dir={gateway.data_dir}"
    for command in (
        ("topics", "create", "a-orders"),
        ("topics", "rm", "a-orders", "--yes"),
        ("rules", "add", "allow", "read", "topic", "a-ruled", "--user", "bob"),
        ("rules", "rm", "allow", "read", "topic", "a-ruled", "--user", "bob", "--yes"),
    ):
        gateway.run_command(*command, place)
    key = json.loads(
        "\n".join(gateway.run_command("users", "keys", "add", "a-bob", "--json", place))
    )
    gateway.run_command("users", "keys", "remove", key["key_id"], "--yes", place)
    rule = "allow read on topic literal a-ruled to bob"
    for action, name in (
        ("topic.create", "a-orders"),
        ("topic.delete", "a-orders"),
        ("rule.add", rule),
        ("rule.remove", rule),
        ("key.add", "a-bob"),
        ("key.remove", key["key_id"]),
    ):
        line = wait_logged(gateway, "audit", action=action, name=name)
        assert (line["who"], line["peer"], line["result"]) == ("admin", HERE, "done")
    assert key["secret"] not in gateway.tail()


def test_refused_logins_name_the_user(gateway: SqsGateway) -> None:
    with suppress(KafkaException):
        kafka(gateway, user="k-mallory", password="guess").list_topics(timeout=5)
    with SecurePaho(gateway.mqtt_port, "m", user=("m-mallory", "guess")) as client:
        client.open()
    wrong = Endpoint(
        gateway.endpoint.url, key_id=gateway.with_key("s-mallory").key_id, secret="no"
    )
    api = Boto3(wrong)
    with pytest.raises(Exception, match="signature"):
        api.client.list_queues()
    api.close()
    for protocol in ("kafka", "mqtt", "sqs"):
        line = wait_logged(
            gateway, "login refused", protocol=protocol, who=f"{protocol[0]}-mallory"
        )
        assert (line["peer"], line["level"]) == (HERE, "warning")
    assert gateway.metric("headgate_refused_logins_total") >= 3


def test_the_starting_line_says_what_runs(gateway: SqsGateway) -> None:
    line = logged(gateway, "starting")[0]
    assert line["data_dir"] == str(gateway.data_dir)
    assert (line["storage"], line["flush"]) == ("segment_log", "group")
    assert f"kafka 127.0.0.1:{gateway.kafka_port}" in line["listeners"]
    assert line["access"] == "users must log in"
    assert line["version"]


def test_without_users_the_starting_line_says_who_may_connect(tmp_path: Path) -> None:
    with SqsGateway(tmp_path / "data", {"log.format": "json"}) as gateway:
        line = wait_logged(gateway, "starting")
    assert line["access"] == "no users: this machine only"
