"""Passwords: failures wait and are counted, others are not held up; the cost is a setting."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.interop.mqtt.programs.secure_paho import SecurePaho
from tests.support.gateway import ROOT, Gateway
from tests.support.mqtt_target import port_of
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("security-passwords")]

PASSWORD = "right horse"


def add_user(folder: Path, name: str, *settings: str) -> None:
    """Add a user of a stopped gateway."""
    command = (
        f"users add {name} --password-stdin --offline --set=node.data_dir={folder / 'data'}"
    )
    words = [*command.split(), *(f"--set={setting}" for setting in settings)]
    command_line = [sys.executable, "-m", "gateway", *words]
    password = f"{PASSWORD}\n".encode()
    subprocess.run(command_line, cwd=ROOT, input=password, check=True, timeout=60)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("passwords")
    for name in ("ada", "bob"):
        add_user(folder, name)
    settings = {
        "adapters.mqtt.bind": "127.0.0.1:0",
        "adapters.mqtt.websocket.enabled": "false",
        "auth.failure_delay_ms": 8_000,
        "auth.failure_delay_ms_max": 8_000,
    }
    with Gateway(folder / "data", settings) as running:
        yield running


def delayed(gateway: Gateway) -> float:
    return gateway.metric("headgate_delayed_logins")


def test_a_failure_waits_is_counted_and_holds_up_nobody_else(gateway: Gateway) -> None:
    port = port_of(gateway.lines, "mqtt")
    refused = gateway.metric("headgate_refused_logins_total")
    with (
        SecurePaho(port, "guessing", user=("ada", "wrong")) as guessing,
        SecurePaho(port, "bob", user=("bob", PASSWORD)) as bob,
        SecurePaho(port, "ada", user=("ada", PASSWORD)) as ada,
    ):
        guessing.client.connect("127.0.0.1", port)
        guessing.client.loop_start()
        wait_until(lambda: delayed(gateway) == 1, within_s=30, what="a delayed login")
        assert gateway.metric("headgate_refused_logins_total") == refused + 1
        assert bob.open() == "Success"
        assert delayed(gateway) == 1
        ada.client.connect("127.0.0.1", port)
        ada.client.loop_start()
        wait_until(lambda: delayed(gateway) == 2, within_s=30, what="ada waits for her turn")
        assert guessing.answer() in {"Bad user name or password", "Not authorized"}
        assert ada.answer() == "Success"


def iterations(gateway: Gateway, user: str) -> dict[str, int]:
    client = AdminClient(
        {
            "bootstrap.servers": gateway.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": user,
            "sasl.password": PASSWORD,
            "log_level": 0,
        }
    )
    found = client.describe_user_scram_credentials([user])[user].result(30)
    return {info.mechanism.name: info.iterations for info in found.scram_credential_infos}


def test_the_cost_of_passwords_is_a_setting_and_old_ones_go_on(tmp_path: Path) -> None:
    add_user(tmp_path, "old", "auth.sha256_iterations=8192", "auth.sha512_iterations=8192")
    add_user(tmp_path, "new", "auth.sha256_iterations=20000")
    settings = {
        "adapters.mqtt.bind": "127.0.0.1:0",
        "adapters.mqtt.websocket.enabled": "false",
        "auth.super_users": '["old", "new"]',
    }
    with Gateway(tmp_path / "data", settings) as gateway:
        old, new = iterations(gateway, "old"), iterations(gateway, "new")
        with SecurePaho(
            port_of(gateway.lines, "mqtt"), "old", user=("old", PASSWORD)
        ) as client:
            assert client.open() == "Success"
    assert old == {"SCRAM_SHA_256": 8_192, "SCRAM_SHA_512": 8_192}
    assert new == {"SCRAM_SHA_256": 20_000, "SCRAM_SHA_512": 210_000}
