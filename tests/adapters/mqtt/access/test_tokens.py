"""MQTT logins by tokens: as the password, and by the method OAUTHBEARER."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.mqtt.config import MqttConfig
from adapters.mqtt.errors import ReasonCode
from adapters.mqtt.server import MqttAdapter
from gateway.auth.jwks import KeySet
from gateway.auth.tokens import TokenValidator
from gateway.clock import ManualClock
from gateway.config.oauth import OauthConfig
from gateway.config.settings import NodeConfig, Settings
from tests.adapters.mqtt.live import PASSWORD, Live
from tests.support import mqtt_wire as wire
from tests.support.live_kernel import running_kernel, serving
from tests.support.mqtt_wire import V5, Kind, Prop
from tests.support.tokens import Authority, write_keys

AUTHORITY = Authority()
V3_1_1 = 4
OAUTHBEARER = "OAUTHBEARER"


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    """An endpoint that needs a login, with the user bob, and with an authority."""
    clock = ManualClock()
    config = OauthConfig(jwks=str(write_keys(tmp_path / "jwks.json", AUTHORITY)))
    keys = KeySet(config, clock)
    await keys.load()
    settings = Settings(node=NodeConfig(data_dir=tmp_path))
    async with running_kernel(settings, clock, users={"bob": PASSWORD}) as (kernel, storage):
        mqtt = MqttConfig.model_validate({"bind": "127.0.0.1:0", "sys_interval_s": 0})
        whole = replace(kernel, tokens=TokenValidator(config, keys, clock))
        adapter = MqttAdapter(mqtt, whole)
        found = Live(adapter, whole, storage)
        async with serving(adapter, storage, found.clients):
            yield found


def token(live: Live, user: str, seconds: int = 60) -> str:
    return AUTHORITY.token(user, live.kernel.clock.wall_unix_ms() / 1_000 + seconds)


@pytest.mark.parametrize("username", ["ada", ""])
@pytest.mark.parametrize("version", [V3_1_1, V5])
async def test_a_token_is_a_password(live: Live, version: int, username: str) -> None:
    client = await live.client(version)
    password = token(live, "ada").encode()
    answer = await client.connect("c", username=username, password=password)
    assert answer.code == 0
    assert live.connection().principal.name == "ada"


@pytest.mark.parametrize(("username", "seconds"), [("eve", 60), ("ada", -60)])
async def test_a_token_that_does_not_fit_is_refused(
    live: Live, username: str, seconds: int
) -> None:
    client = await live.client(V5)
    password = token(live, "ada", seconds).encode()
    answer = await client.connect("c", username=username, password=password)
    assert answer.code == ReasonCode.BAD_USER_NAME_OR_PASSWORD
    assert live.kernel.logins.refused["mqtt"] == 1


async def test_passwords_are_taken_as_before(live: Live) -> None:
    client = await live.client(V5)
    answer = await client.connect("c", username="bob", password=PASSWORD.encode())
    assert answer.code == 0


async def test_a_token_comes_by_enhanced_authentication(live: Live) -> None:
    client = await live.client(V5)
    data = f"n,,\x01auth=Bearer {token(live, 'ada')}\x01\x01".encode()
    client.send(
        wire.connect("c", found=[(Prop.AUTH_METHOD, OAUTHBEARER), (Prop.AUTH_DATA, data)])
    )
    answer = await client.receive(Kind.CONNACK)
    assert answer.code == 0
    assert live.connection().principal.name == "ada"
