"""Definitions of a real RabbitMQ: imported, exported equal; its passwords and permissions hold.

``rabbitmq_3_10_8_definitions.json`` is what Debian's RabbitMQ 3.10.8 exports. The passwords of its
users are ``lovelace`` (ada, administrator), ``pencil`` (app), ``test12`` (old), ``five`` (md5),
``twelve`` (sha512).
"""

import json
from pathlib import Path
from typing import Any

import pika
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.adapters.amqp.management.conftest import DEFINITIONS, settings, target_of
from tests.support.amqp_management import ManagementClient, named
from tests.support.amqp_target import AmqpTarget
from tests.support.gateway import Gateway

ADMINISTRATOR = "ada:lovelace"
# What is the same in every export of one node, or of the product.
_OF_THE_PRODUCT = {"rabbit_version", "rabbitmq_version", "product_name", "product_version"}


def sorted_definitions(found: dict[str, Any]) -> dict[str, list[str]]:
    """Return the sections with their entries in one order; RabbitMQ's has no meaning."""
    return {
        name: sorted(json.dumps(entry, sort_keys=True) for entry in entries)
        for name, entries in found.items()
        if name not in _OF_THE_PRODUCT
    }


def connected(target: AmqpTarget, user: str, password: str, vhost: str) -> None:
    """Open a vhost and close it."""
    credentials = pika.PlainCredentials(user, password)
    parameters = pika.ConnectionParameters(
        "127.0.0.1", target.port, vhost, credentials, connection_attempts=1
    )
    pika.BlockingConnection(parameters).close()


def test_a_file_of_rabbitmq_is_exported_equal(secured: AmqpTarget) -> None:
    found = ManagementClient(secured.management_port, ADMINISTRATOR).get("definitions")
    expected = json.loads(DEFINITIONS.read_text())
    assert sorted_definitions(found) == sorted_definitions(expected)


def test_the_definitions_of_a_vhost_do_not_name_it(secured: AmqpTarget) -> None:
    api = ManagementClient(secured.management_port, ADMINISTRATOR)
    found = api.get("definitions/shop")
    assert {one["name"] for one in found["queues"]} == {"orders", "lost", "a/b c"}
    assert "users" not in found
    assert all("vhost" not in one for one in found["queues"])


def test_definitions_are_imported_again(secured: AmqpTarget) -> None:
    api = ManagementClient(secured.management_port, ADMINISTRATOR)
    before = api.get("definitions")
    api.post("definitions", before)
    assert api.get("definitions") == before


@pytest.mark.parametrize(
    ("user", "password", "vhost"),
    [("app", "pencil", "/"), ("old", "test12", "shop"), ("ada", "lovelace", "/staging")],
)
def test_hashed_passwords_open_connections(
    secured: AmqpTarget, user: str, password: str, vhost: str
) -> None:
    connected(secured, user, password, vhost)


@pytest.mark.parametrize(("user", "password"), [("md5", "five"), ("sha512", "twelve")])
def test_all_hashing_algorithms_are_known(
    secured: AmqpTarget, user: str, password: str
) -> None:
    connected(secured, user, password, "/")  # without permissions of its own
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        connected(secured, user, f"{password}!", "/")


def test_a_hashed_password_opens_kafka_too(secured: AmqpTarget) -> None:
    config = {
        "bootstrap.servers": secured.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ada",
        "sasl.password": "lovelace",
    }
    assert AdminClient(config).list_topics(timeout=60).brokers
    wrong = AdminClient({**config, "sasl.password": "other", "log_level": 0})
    with pytest.raises(KafkaException):
        wrong.list_topics(timeout=3)


def test_a_user_without_permission_does_not_open_a_vhost(secured: AmqpTarget) -> None:
    text = "access to vhost '/' refused for user 'old'"
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match=text):
        connected(secured, "old", "test12", "/")


def test_permissions_hold(secured: AmqpTarget) -> None:
    parameters = pika.URLParameters(f"amqp://app:pencil@127.0.0.1:{secured.port}/shop")
    connection = pika.BlockingConnection(parameters)
    connection.channel().queue_declare("app.jobs", durable=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        connection.channel().queue_declare("other", durable=True)
    connection.channel().queue_delete("app.jobs")
    connection.close()
    assert caught.value.reply_text == (
        "ACCESS_REFUSED - configure access to queue 'other' in vhost 'shop' refused for user 'app'"
    )


def test_routing_keys_of_topic_exchanges_are_guarded(secured: AmqpTarget) -> None:
    api = ManagementClient(secured.management_port, ADMINISTRATOR)
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    api.put("users/keyed", {"password": "pw", "tags": ""})
    api.put("permissions/shop/keyed", everything)
    api.put(
        "topic-permissions/shop/keyed",
        {"exchange": "events", "write": "^{username}\\.", "read": ".*"},
    )
    parameters = pika.URLParameters(f"amqp://keyed:pw@127.0.0.1:{secured.port}/shop")
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("events", "keyed.a", b"")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.basic_publish("events", "other.a", b"")
    connection.close()
    api.delete("users/keyed")
    assert caught.value.reply_code == 403


def test_connections_of_a_removed_user_end(secured: AmqpTarget) -> None:
    api = ManagementClient(secured.management_port, ADMINISTRATOR)
    api.put("users/leaving", {"password": "pw", "tags": ""})
    parameters = pika.URLParameters(f"amqp://leaving:pw@127.0.0.1:{secured.port}/%2F")
    connection = pika.BlockingConnection(parameters)
    api.delete("users/leaving")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        connection.process_data_events(time_limit=60)
    assert caught.value.reply_code == 320
    assert api.call("GET", "users/leaving").status == 404


def test_tags_open_calls(secured: AmqpTarget) -> None:
    port = secured.management_port
    manager = ManagementClient(port, "app:pencil")
    assert manager.get("whoami") == {"name": "app", "tags": ["management", "policymaker"]}
    assert {one["name"] for one in manager.get("vhosts")} == {"/", "shop"}
    refusals = {
        ("app:pencil", "users"): "Not administrator user",
        ("app:pencil", "nodes"): "Not monitor user",
        ("app:pencil", "queues/%2Fstaging"): "User not authorised to access virtual host",
        ("old:test12", "overview"): "Not management user",
        ("sha512:twelve", "users"): "Not administrator user",
        ("app:wrong", "overview"): "Login failed",
    }
    for (credentials, path), reason in refusals.items():
        answer = ManagementClient(port, credentials).call("GET", path)
        assert (answer.status, answer.body) == (
            401,
            {"error": "not_authorised", "reason": reason},
        ), path
    assert ManagementClient(port, "sha512:twelve").get("nodes")


def test_an_import_says_which_entry_is_wrong(secured: AmqpTarget) -> None:
    api = ManagementClient(secured.management_port, ADMINISTRATOR)
    wrong = {"queues": [{"name": "q", "vhost": "none", "durable": True, "arguments": {}}]}
    answer = api.call("POST", "definitions", wrong)
    assert answer.status == 400
    assert answer.body["reason"].startswith("queues: vhost 'none' name 'q': ")
    assert api.call("POST", "definitions", b"x").body["reason"] == "failed_to_parse_json"


def test_the_first_user_has_to_be_an_administrator(tmp_path: Path) -> None:
    with Gateway(tmp_path / "data", settings()) as gateway:
        target = target_of(gateway)
        api = ManagementClient(target.management_port)
        refused = api.call("PUT", "users/plain", {"password": "pw", "tags": "management"})
        api.post("definitions", json.loads(DEFINITIONS.read_text()))
        locked = ManagementClient(target.management_port, "any:body").call("GET", "overview")
        ada = ManagementClient(target.management_port, ADMINISTRATOR)
        assert refused.status == 400
        assert "administrator" in refused.body["reason"]
        assert locked.status == 401
        assert ada.get("whoami")["tags"] == ["administrator"]
        ada.delete("vhosts/shop")
        assert ada.call("GET", "vhosts/shop").status == 404
        with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
            connected(target, "ada", "lovelace", "shop")
        assert "shop" not in {one["vhost"] for one in ada.get("permissions")}
        ada.call("PUT", f"vhosts/{named('shop')}", {})
        assert ada.get("queues/shop") == []
    with Gateway(tmp_path / "data", settings()) as gateway:  # what was changed is stored
        target = target_of(gateway)
        ada = ManagementClient(target.management_port, ADMINISTRATOR)
        assert {one["name"] for one in ada.get("vhosts")} == {"/", "/staging", "shop"}
        assert ada.get("users/old")["hashing_algorithm"] == "rabbit_password_hashing_sha256"
