"""Client certificates are users, by Kafka, MQTT and SQS; what maps to nobody is nobody."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography import x509

from gateway.auth.certificates import mapped_user
from tests.interop.mqtt.programs.secure_paho import SecurePaho
from tests.support.certificates import make_certificate
from tests.support.client_certificates import make_client_certificate
from tests.support.sqs_gateway import SqsGateway

LIVE = [pytest.mark.interop, pytest.mark.xdist_group("security-certificates")]
Pair = tuple[Path, Path]

RULES = [
    '{principal="ada", resource="topic", pattern="prefix", name="ada-"}',
    '{principal="ada", resource="mqtt_topic", pattern="filter", name="ada/#"}',
]


class Node(NamedTuple):
    """A gateway that demands client certificates of its authority."""

    gateway: SqsGateway
    authority: Pair

    def certificate(self, name: str, *alternatives: x509.GeneralName) -> Pair:
        return make_client_certificate(self.authority, name, *alternatives)

    def kafka(self, own: Pair) -> AdminClient:
        return AdminClient(
            {
                "bootstrap.servers": self.gateway.bootstrap,
                "security.protocol": "SSL",
                "ssl.ca.location": str(self.authority[0]),
                "ssl.certificate.location": str(own[0]),
                "ssl.key.location": str(own[1]),
                "log_level": 0,
            }
        )

    def mqtt(self, own: Pair, client_id: str) -> SecurePaho:
        return SecurePaho(
            self.gateway.mqtt_port, client_id, authority=self.authority[0], certificate=own
        )

    def sqs(self, own: Pair) -> Any:
        return boto3.client(
            "sqs",
            endpoint_url=f"https://127.0.0.1:{self.gateway.sqs_port}",
            region_name="us-east-1",
            aws_access_key_id="any",
            aws_secret_access_key="any",
            verify=str(self.authority[0]),
            config=Config(client_cert=(str(own[0]), str(own[1])), retries={"max_attempts": 0}),
        )


def running(folder: Path, settings: dict[str, object]) -> Iterator[Node]:
    authority = make_certificate(folder)
    every: dict[str, object] = {
        "auth.required": "true",
        "auth.default": "deny",
        "auth.rules": f"[{', '.join(RULES)}]",
        "adapters.mqtt.acl_default": "deny",
    }
    for name in ("kafka", "mqtt", "sqs"):
        every[f"adapters.{name}.tls_cert"] = authority[0]
        every[f"adapters.{name}.tls_key"] = authority[1]
        every[f"adapters.{name}.tls_client_ca"] = authority[0]
    with SqsGateway(folder / "data", {**every, **settings}) as gateway:
        yield Node(gateway, authority)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    yield from running(tmp_path_factory.mktemp("certificates"), {})


@pytest.fixture(scope="module")
def by_dns(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    settings: dict[str, object] = {}
    for name in ("kafka", "mqtt", "sqs"):
        settings[f"adapters.{name}.tls_client_user"] = "dns"
        settings[f"adapters.{name}.tls_client_pattern"] = "(.+)[.]clients[.]example"
    yield from running(tmp_path_factory.mktemp("certificates-dns"), settings)


def assert_is_ada(node: Node, own: Pair) -> None:
    """Check that rules for ada hold for who shows this certificate, by all three protocols."""
    client = node.kafka(own)
    client.create_topics([NewTopic("ada-kafka", 1, 1)])["ada-kafka"].result(30)
    with pytest.raises(KafkaException, match="AUTHORIZATION"):
        client.create_topics([NewTopic("bob-kafka", 1, 1)])["bob-kafka"].result(30)
    with node.mqtt(own, "ada-1") as mqtt:
        assert mqtt.open() == "Success"
        assert mqtt.publish("ada/1", b"x") in {"Success", "No matching subscribers"}
        assert mqtt.publish("bob/1", b"x") == "Not authorized"
    sqs = node.sqs(own)
    sqs.create_queue(QueueName="ada-sqs")
    with pytest.raises(ClientError, match="not authorized"):
        sqs.create_queue(QueueName="bob-sqs")
    sqs.close()


def assert_is_nobody(node: Node, own: Pair) -> None:
    with pytest.raises(KafkaException):
        node.kafka(own).list_topics(timeout=5)
    with node.mqtt(own, "nobody") as mqtt:
        assert mqtt.open() == "Not authorized"
    sqs = node.sqs(own)
    with pytest.raises(ClientError, match="security token"):
        sqs.list_queues()
    sqs.close()


class TestLive:
    pytestmark = LIVE

    def test_a_common_name_is_the_user_by_all_protocols(self, node: Node) -> None:
        assert_is_ada(node, node.certificate("ada"))

    def test_a_name_that_can_be_no_users_is_nobody(self, node: Node) -> None:
        assert_is_nobody(node, node.certificate("ANONYMOUS"))

    def test_an_alternative_name_is_the_user_by_rule(self, by_dns: Node) -> None:
        name = x509.DNSName("ada.clients.example")
        assert_is_ada(by_dns, by_dns.certificate("somebody", name))

    def test_what_the_rule_does_not_map_is_nobody(self, by_dns: Node) -> None:
        assert_is_nobody(by_dns, by_dns.certificate("ada", x509.DNSName("ada.elsewhere")))


SUBJECT = ((("commonName", "ada"),), (("organizationName", "ops"),))
ALTERNATIVES = (
    ("DNS", "ada.clients.example"),
    ("email", "ada@example"),
    ("URI", "spiffe://example/ns/ada"),
)


@pytest.mark.parametrize(
    ("kind", "pattern", "user"),
    [
        ("cn", "", "ada"),
        ("cn", "a(.)a", "d"),
        ("cn", "a", None),
        ("dns", "(.+)[.]clients[.]example", "ada"),
        ("dns", "(.+)[.]clients", None),
        ("email", "([^@]+)@example", "ada"),
        ("uri", "spiffe://example/ns/(.+)", "ada"),
        ("none", "", None),
    ],
)
def test_a_rule_is_about_the_whole_name(kind: str, pattern: str, user: str | None) -> None:
    shown = {"subject": SUBJECT, "subjectAltName": ALTERNATIVES}
    assert mapped_user(shown, kind, pattern) == user


@pytest.mark.parametrize("names", [("ada", "bob"), ("*",), ("ANONYMOUS",), ("",), ("a\0b",)])
def test_two_users_and_no_users_name_are_nobody(names: tuple[str, ...]) -> None:
    subject = tuple((("commonName", name),) for name in names)
    assert mapped_user({"subject": subject}, "cn", "") is None


def test_without_a_certificate_there_is_nobody() -> None:
    assert mapped_user({}, "cn", "") is None


@pytest.mark.parametrize("name", ["a\u00adda", "\uff41da", "ada\u200b"])
def test_a_name_that_looks_like_another_is_nobody(name: str) -> None:
    assert mapped_user({"subject": ((("commonName", name),),)}, "cn", "") is None
