"""Users, keys and rules of the config file, with their secrets in files."""

import base64
import hashlib
import hmac
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from gateway.config.toml_text import format_value
from gateway.testing.process import ProgramFailed
from tests.interop.mqtt.programs.secure_paho import SecurePaho
from tests.interop.mqtt.secured import add_user
from tests.interop.sqs.programs.client_api import Endpoint
from tests.interop.sqs.programs.with_boto3 import Boto3
from tests.security.gateway_with_users import SASL_AUTHENTICATE, SASL_HANDSHAKE
from tests.support.kafka_wire import Connection, text
from tests.support.sqs_gateway import SqsGateway

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("security-declared")]

PASSWORD, SECRET = "right horse", "s3cret-of-ada"
OLD = "old horse"


def verifier(password: str) -> str:
    """Return a SCRAM verifier as RFC 5802 and PostgreSQL have it, without any code of ours."""
    salt = b"salt-of-bob"
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 4_096)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    texts = [base64.b64encode(part).decode() for part in (salt, stored, server)]
    return "SCRAM-SHA-256$4096:{}${}:{}".format(*texts)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsGateway]:
    folder = tmp_path_factory.mktemp("declared")
    (folder / "ada.password").write_text(f"{PASSWORD}\n")
    (folder / "ada.secret").write_text(SECRET)
    users = [
        {
            "name": "ada",
            "password_file": str(folder / "ada.password"),
            "keys": [{"key_id": "AKIAADA", "secret_file": str(folder / "ada.secret")}],
        },
        {"name": "bob", "scram": [verifier(PASSWORD)]},
    ]
    rules = [
        {"principal": "bob", "resource": "mqtt_topic", "pattern": "filter", "name": "to/%u/#"},
        {
            "principal": "bob",
            "client": "b-2",
            "operation": "publish",
            "resource": "mqtt_topic",
            "pattern": "filter",
            "name": "only/one",
        },
    ]
    settings = {
        "users": format_value(users),
        "auth.rules": format_value(rules),
        "auth.super_users": '["ada"]',
        "adapters.sqs.anonymous": "never",
        "adapters.mqtt.acl_default": "deny",
    }
    add_user(folder / "data", "ada", OLD)
    add_user(folder / "data", "carol", PASSWORD)
    with SqsGateway(folder / "data", settings) as running:
        yield running


def topics(gateway: SqsGateway, user: str, password: str, mechanism: str) -> int:
    client = AdminClient(
        {
            "bootstrap.servers": gateway.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }
    )
    return len(client.list_topics(timeout=10).topics)


def command(gateway: SqsGateway, *words: str) -> Any:
    lines = gateway.run_command(*words, "--json", f"--set=node.data_dir={gateway.data_dir}")
    return json.loads("\n".join(lines))


@pytest.mark.parametrize(
    ("user", "mechanism"),
    [("ada", "PLAIN"), ("ada", "SCRAM-SHA-512"), ("bob", "PLAIN"), ("bob", "SCRAM-SHA-256")],
)
def test_declared_users_log_in(gateway: SqsGateway, user: str, mechanism: str) -> None:
    topics(gateway, user, PASSWORD, mechanism)


def test_of_two_users_with_one_name_that_of_the_file_counts(gateway: SqsGateway) -> None:
    with Connection(gateway.kafka_port) as connection:
        connection.call(SASL_HANDSHAKE, 1, text("PLAIN"))
        token = f"\0ada\0{OLD}".encode()
        answer = connection.call(SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
    assert struct.unpack_from(">h", answer) == (KafkaError.SASL_AUTHENTICATION_FAILED,)
    topics(gateway, "carol", PASSWORD, "PLAIN")


def test_users_and_keys_show_their_origin(gateway: SqsGateway) -> None:
    users = {user["name"]: user["origin"] for user in command(gateway, "users", "ls")}
    keys = {key["key_id"]: key["origin"] for key in command(gateway, "users", "keys", "list")}
    assert users == {"ada": "config", "bob": "config", "carol": "store"}
    assert keys == {"AKIAADA": "config"}


@pytest.mark.parametrize(
    "words",
    [("users", "rm", "bob", "--yes"), ("users", "keys", "remove", "AKIAADA", "--yes")],
)
def test_what_is_declared_is_changed_in_the_file_only(
    gateway: SqsGateway, words: tuple[str, ...]
) -> None:
    with pytest.raises(ProgramFailed, match="config file"):
        gateway.run_command(*words, f"--set=node.data_dir={gateway.data_dir}")


def test_a_declared_key_signs(gateway: SqsGateway) -> None:
    right = Boto3(Endpoint(gateway.endpoint.url, key_id="AKIAADA", secret=SECRET))
    right.client.create_queue(QueueName="declared")
    right.close()
    wrong = Boto3(Endpoint(gateway.endpoint.url, key_id="AKIAADA", secret="no"))
    with pytest.raises(ClientError):
        wrong.client.list_queues()
    wrong.close()


def test_declared_rules_know_mqtt_filters_and_clients(gateway: SqsGateway) -> None:
    def published(client_id: str, topic: str) -> str:
        with SecurePaho(gateway.mqtt_port, client_id, user=("bob", PASSWORD)) as client:
            assert client.open() == "Success"
            return client.publish(topic, b"x")

    assert published("b-1", "to/bob/x") in {"Success", "No matching subscribers"}
    assert published("b-1", "to/ada/x") == "Not authorized"
    assert published("b-1", "only/one") == "Not authorized"
    assert published("b-2", "only/one") in {"Success", "No matching subscribers"}


def test_the_database_url_may_be_in_a_file(tmp_path: Path) -> None:
    database = tmp_path / "elsewhere.sqlite"
    (tmp_path / "url").write_text(f"sqlite:///{database}\n")
    settings = {"metadata.url_file": tmp_path / "url"}
    with SqsGateway(tmp_path / "data", settings):
        pass
    assert database.exists()
    assert not (tmp_path / "data" / "metadata.sqlite").exists()


@pytest.mark.parametrize(
    ("users", "words"),
    [
        ('[{name="a", password_file="/nowhere"}]', "users[0].password_file: /nowhere: No such"),
        ('[{name="ANONYMOUS"}]', "users[0].name: 'ANONYMOUS' cannot be a user's name"),
        ('[{name="a"}, {name="a"}]', "users: 'a' is there twice"),
        ('[{name="a", scram=["hidden"]}]', "users[0].scram: a verifier is not as"),
    ],
)
def test_what_cannot_be_used_is_one_line_with_the_key(
    tmp_path: Path, users: str, words: str
) -> None:
    with pytest.raises(ProgramFailed) as caught:
        SqsGateway(tmp_path / "data", {"users": users}).start()
    said = [line for line in str(caught.value).splitlines() if line.startswith("headgate:")]
    assert words in said[0]
    assert len(said) == 1
    assert "hidden" not in str(caught.value)
