"""Several Kafka listeners: each has its address, TLS, authentication and namespace."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from gateway.config.advice import check_exposure, warnings
from gateway.config.base import InvalidSettings
from gateway.config.loader import load_settings
from gateway.config.toml_text import format_value
from gateway.testing.ports import free_port
from tests.interop.mqtt.secured import add_user
from tests.security.log_lines import wait_logged
from tests.support.certificates import make_certificate
from tests.support.client_certificates import make_client_certificate
from tests.support.gateway import Gateway

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("security-listeners")]

USER, PASSWORD = "ada", "right horse"


class Node(NamedTuple):
    """A gateway with four listeners, by name."""

    gateway: Gateway
    ports: dict[str, int]
    authority: tuple[Path, Path]

    def settings(self, name: str, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"127.0.0.1:{self.ports[name]}",
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in more.items()},
        }

    def admin(self, name: str, **more: Any) -> AdminClient:
        return AdminClient(self.settings(name, **more))

    @property
    def tls(self) -> dict[str, Any]:
        own = make_client_certificate(self.authority, "bob")
        return {
            "security_protocol": "SSL",
            "ssl_ca_location": str(self.authority[0]),
            "ssl_certificate_location": str(own[0]),
            "ssl_key_location": str(own[1]),
        }


SASL = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": USER,
    "sasl_password": PASSWORD,
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("listeners")
    authority = make_certificate(folder)
    add_user(folder / "data", USER, PASSWORD)
    ports = {name: free_port() for name in ("inside", "outside", "mutual", "other")}

    def listener(name: str, **more: object) -> dict[str, object]:
        return {"name": name, "bind": f"127.0.0.1:{ports[name]}", **more}

    tls = {
        "tls_cert": str(authority[0]),
        "tls_key": str(authority[1]),
        "tls_client_ca": str(authority[0]),
    }
    listeners = [
        listener("inside", advertise="inside.example:1111"),
        listener("outside", advertise="outside.example:2222", authentication="sasl"),
        listener("mutual", authentication="certificate", **tls),
        listener("other", namespace="other"),
    ]
    settings = {
        "log.format": "json",
        "auth.required": "false",
        "adapters.kafka.listeners": format_value(listeners),
    }
    with Gateway(folder / "data", settings) as gateway:
        yield Node(gateway, ports, authority)


def brokers(client: AdminClient) -> list[str]:
    found = client.list_topics(timeout=10).brokers.values()
    return [f"{broker.host}:{broker.port}" for broker in found]


def test_metadata_has_the_address_of_the_listener_that_was_asked(node: Node) -> None:
    assert brokers(node.admin("inside")) == ["inside.example:1111"]
    assert brokers(node.admin("outside", **SASL)) == ["outside.example:2222"]
    assert brokers(node.admin("other")) == [f"127.0.0.1:{node.ports['other']}"]


def test_the_simple_bind_is_not_listened_on_beside_them(node: Node) -> None:
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": node.gateway.bootstrap}).list_topics(timeout=2)


def test_a_listener_that_asks_for_sasl_serves_nobody_without(node: Node) -> None:
    with pytest.raises(KafkaException):
        node.admin("outside").list_topics(timeout=3)


def test_a_listener_that_asks_for_certificates_takes_no_password(node: Node) -> None:
    node.admin("mutual", **node.tls).list_topics(timeout=10)
    with pytest.raises(KafkaException):
        node.admin(
            "mutual", **{**node.tls, **SASL, "security_protocol": "SASL_SSL"}
        ).list_topics(timeout=3)


def test_a_certificate_that_maps_to_nobody_is_refused_and_logged(node: Node) -> None:
    own = make_client_certificate(node.authority, "*")
    more = {
        **node.tls,
        "ssl_certificate_location": str(own[0]),
        "ssl_key_location": str(own[1]),
    }
    with pytest.raises(KafkaException):
        node.admin("mutual", **more).list_topics(timeout=3)
    line = wait_logged(node.gateway, "login refused", protocol="kafka", who="-")
    assert line["detail"] == "the certificate maps to no user"


def test_namespaces_share_no_topics_and_no_groups(node: Node) -> None:
    topic, group = f"t-{uuid4()}", f"g-{uuid4()}"
    tls = node.tls
    for name, more in (("mutual", tls), ("other", {})):
        client = node.admin(name, **more)
        client.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        producer = Producer(node.settings(name, **more))
        producer.produce(topic, name.encode())
        assert producer.flush(30) == 0

    seen = {
        "mutual": read_one(node, "mutual", topic, group, tls),
        "other": read_one(node, "other", topic, group, {}),
    }

    assert seen == {"mutual": b"mutual", "other": b"other"}
    client = node.admin("other")
    assert set(client.list_topics(timeout=10).topics) == {topic}


def read_one(node: Node, name: str, topic: str, group: str, more: dict[str, Any]) -> bytes:
    settings = node.settings(name, group_id=group, auto_offset_reset="earliest", **more)
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    value = message.value()
    assert isinstance(value, bytes)
    return value


@pytest.mark.parametrize(
    ("authentication", "is_refused"), [("any", True), ("sasl", False), ("certificate", False)]
)
def test_a_listener_that_asks_everybody_may_be_open_to_others(
    tmp_path: Path, *, authentication: str, is_refused: bool
) -> None:
    cert, key = make_certificate(tmp_path)
    listener = {
        "name": "outside",
        "bind": "0.0.0.0:0",
        "authentication": authentication,
        "tls_cert": str(cert),
        "tls_key": str(key),
        **({"tls_client_ca": str(cert)} if authentication == "certificate" else {}),
    }
    kafka = format_value({"listeners": [listener]})
    settings = load_settings(assignments=[f"adapters.kafka={kafka}"])
    if not is_refused:
        check_exposure(settings, users_configured=False)
        return
    with pytest.raises(InvalidSettings, match=r"adapters\.kafka\.listeners\[0\]\.bind"):
        check_exposure(settings, users_configured=False)


def test_keys_that_no_listener_goes_by_are_warned_of() -> None:
    listeners = format_value([{"name": "inside", "bind": "127.0.0.1:0"}])
    assignments = [f"adapters.kafka.listeners={listeners}"]
    before = warnings(load_settings(assignments=assignments))
    assignments.append("adapters.kafka.authentication=sasl")
    after = warnings(load_settings(assignments=assignments))
    assert [line for line in before if line.startswith("adapters.kafka")] == []
    (found,) = [line for line in after if line.startswith("adapters.kafka")]
    assert found.startswith("adapters.kafka.authentication: is for adapters.kafka.bind")
