"""SIGHUP: new certificates for new connections, some settings; the node goes on in any case."""

import http.client
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.admin.token import read_token
from tests.interop.mqtt.programs.secure_paho import CLOSED, SecurePaho
from tests.security.tls import Tls, handshake
from tests.support.certificates import make_certificate
from tests.support.client_certificates import make_client_certificate
from tests.support.gateway import Gateway
from tests.support.sqs_gateway import SqsGateway
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of the node's certificate, which is an authority of its own."""
    found = tmp_path / "tls"
    found.mkdir()
    make_certificate(found)
    return found


@pytest.fixture
def gateway(tmp_path: Path, folder: Path) -> Iterator[Gateway]:
    settings = {
        "adapters.kafka.tls_cert": folder / "cert.pem",
        "adapters.kafka.tls_key": folder / "key.pem",
        "adapters.kafka.tls_client_ca": folder / "cert.pem",
    }
    with Gateway(tmp_path / "data", settings) as running:
        yield running


def reload(gateway: Gateway, says: str) -> None:
    """Send SIGHUP and wait for a new line that says so."""
    seen = sum(says in line for line in gateway.lines)
    os.kill(gateway.pid, signal.SIGHUP)
    wait_until(
        lambda: sum(says in line for line in gateway.lines) > seen, within_s=30, what=says
    )


def test_new_connections_see_the_new_certificate_and_authority(
    gateway: Gateway, folder: Path
) -> None:
    old = make_client_certificate((folder / "cert.pem", folder / "key.pem"), "ada")
    first = Tls(gateway.kafka_port, old)
    before = first.certificate
    make_certificate(folder)

    reload(gateway, "certificates read anew")

    assert first.answers()
    new = make_client_certificate((folder / "cert.pem", folder / "key.pem"), "bob")
    second = Tls(gateway.kafka_port, new)
    assert second.certificate != before
    assert second.answers()
    assert not handshake(gateway.kafka_port, old)
    first.close()
    second.close()


def test_a_broken_certificate_is_logged_and_the_old_one_stays(
    gateway: Gateway, folder: Path
) -> None:
    own = make_client_certificate((folder / "cert.pem", folder / "key.pem"), "ada")
    (folder / "cert.pem").write_text("not a certificate")
    reload(gateway, "certificates not read anew, the old ones stay")
    assert handshake(gateway.kafka_port, own)


def test_settings_that_are_safe_hold_and_others_are_named(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "data")
    with gateway:
        config = tmp_path / "data.toml"
        config.write_text(
            "[adapters.kafka]\nfetch_bytes_max = 2048\n[auth]\nfailure_delay_ms = 1\n"
        )
        reload(gateway, "changed=auth.failure_delay_ms")
        wait_until(
            lambda: any("keys=adapters.kafka.fetch_bytes_max" in one for one in gateway.lines),
            within_s=30,
            what="what needs a restart is named",
        )
        config.write_text("[adapters.kafka]\nnonsense = 1\n")
        reload(gateway, "settings not read anew")
        assert gateway.http("/readyz")[0] == 200


def test_sighup_at_any_time_does_not_end_the_node(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "data")
    with gateway:
        for _ in range(20):
            os.kill(gateway.pid, signal.SIGHUP)
        assert gateway.http("/readyz")[0] == 200


def test_users_keys_and_rules_of_the_file_hold_at_once(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("first")
    gateway = SqsGateway(tmp_path / "data", {"auth.default": "deny"})
    gateway.settings["adapters.sqs.anonymous"] = "never"
    user = f'[[users]]\nname = "ada"\npassword_file = "{secret}"\n'
    rule = '[[auth.rules]]\nprincipal = "ada"\nresource = "topic"\n'
    config = tmp_path / "data.toml"

    def write(tables: str) -> None:
        adapters = "".join(f"[adapters.{name}]\n" for name in ("kafka", "mqtt", "sqs"))
        config.write_text(adapters + tables)

    def opens(password: str) -> str:
        with SecurePaho(gateway.mqtt_port, "ada", user=("ada", password)) as client:
            return client.open()

    gateway.settings["auth.required"] = "true"
    with gateway:
        assert opens("first") != "Success"
        write(user + rule)
        reload(gateway, "settings read anew")
        watcher = SecurePaho(gateway.mqtt_port, "watcher", user=("ada", "first"))
        with watcher:
            assert watcher.open() == "Success"
            secret.write_text("second")
            reload(gateway, "settings read anew")
            assert opens("second") == "Success"
            assert opens("first") != "Success"
            place = f"--set=node.data_dir={gateway.data_dir}"
            rules = gateway.run_command("rules", "ls", place)
            assert any("ada" in line and "config" in line for line in rules)
            write("")
            reload(gateway, "settings read anew")
            assert watcher.answer() == CLOSED
        assert opens("second") != "Success"


def admin(gateway: Gateway, method: str, path: str, body: object = None) -> Any:
    """Ask the admin endpoint, as who has its token."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.admin_port, timeout=60)
    headers = {"Authorization": f"Bearer {read_token(gateway.data_dir)}"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    assert response.status == http.client.OK, answer
    return answer


def add_user(gateway: Gateway, name: str) -> None:
    admin(gateway, "PUT", f"/v1/users/{name}", {"password": "sesame"})


def administrators(gateway: Gateway) -> list[str]:
    users = admin(gateway, "GET", "/v1/users")["users"]
    return [user["name"] for user in users if user["administrator"]]


def test_a_rule_that_makes_no_sense_changes_nothing(tmp_path: Path) -> None:
    """And who has no user yet is told, and can make one."""
    gateway = Gateway(tmp_path / "data", {"auth.required": "true"})
    with gateway:
        assert "there are none: headgate users add NAME" in "\n".join(gateway.lines)
        for name in ("root", "eve"):
            add_user(gateway, name)
        config = tmp_path / "data.toml"
        config.write_text(
            "[adapters.kafka]\n[auth]\nsuper_users = ['eve']\n"
            "[[auth.rules]]\nresource = 'mqtt_topic'\npattern = 'filter'\nname = 'a#b'\n"
        )
        reload(gateway, "settings not read anew, the old ones stay")
        assert administrators(gateway) == ["root"]
