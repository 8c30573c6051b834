"""Stock MQTT clients in Python, unmodified, do what they do with any broker."""

import asyncio
import gc
from typing import Any

import pytest

from tests.interop.mqtt.programs.link import V3_1, V3_1_1, V5, Endpoint
from tests.interop.mqtt.programs.with_aiomqtt import AiomqttLink
from tests.interop.mqtt.programs.with_amqtt import AmqttLink
from tests.interop.mqtt.programs.with_gmqtt import GmqttLink
from tests.interop.mqtt.programs.with_paho import PahoLink
from tests.interop.mqtt.scenario import Scenario, expected
from tests.support.mqtt_target import Target

pytestmark = [
    pytest.mark.interop,
    pytest.mark.xdist_group("mqtt-interop"),
    # Sockets that paho and gmqtt leave to the garbage collector are their own affair.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

# aiomqtt and amqtt do not tell whether a session was there.
QUIET = {AiomqttLink, AmqttLink}
CASES = [
    pytest.param(PahoLink, V3_1, False, id="paho-3.1"),
    pytest.param(PahoLink, V3_1_1, False, id="paho-3.1.1"),
    pytest.param(PahoLink, V5, False, id="paho-5.0"),
    pytest.param(PahoLink, V5, True, id="paho-5.0-websocket"),
    pytest.param(GmqttLink, V3_1_1, False, id="gmqtt-3.1.1"),
    pytest.param(GmqttLink, V5, False, id="gmqtt-5.0"),
    pytest.param(AiomqttLink, V3_1_1, True, id="aiomqtt-3.1.1-websocket"),
    pytest.param(AiomqttLink, V5, False, id="aiomqtt-5.0"),
    pytest.param(AmqttLink, V3_1_1, False, id="amqtt-3.1.1"),
]


async def run(maker: Any, endpoint: Endpoint, stem: str) -> dict[str, Any]:
    return await Scenario(maker, endpoint, stem).run()


@pytest.mark.parametrize(("maker", "version", "is_websocket"), CASES)
def test_a_client_sees_what_it_should(
    target: Target,
    stem: str,
    maker: Any,
    version: int,
    is_websocket: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    port = target.websocket_port if is_websocket else target.port
    endpoint = Endpoint(port, version, is_websocket, target.websocket_path)

    with asyncio.Runner() as runner:  # Python's own loop: what these clients are made for
        seen = runner.run(run(maker, endpoint, stem))
    gc.collect()

    without = ["session present"] if maker in QUIET or version == V3_1 else []
    if version == V3_1:
        seen.pop("session present", None)  # its CONNACK has no such bit
    assert seen == expected(version, *without)
