"""The MQTT endpoint that is judged: a gateway of this test process, or Mosquitto.

``HEADGATE_MQTT_TARGET=mosquitto`` turns the suites on Debian's Mosquitto; what is green there
asks for what MQTT says. ``OWN`` marks what only a gateway has, ``STRICT`` what Mosquitto 2.0
does not do although the specification asks for it.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from gateway.testing.ports import free_port
from gateway.testing.process import Program
from tests.support.gateway import Gateway
from tests.support.toolchain import need

NAME: Final = os.environ.get("HEADGATE_MQTT_TARGET", "headgate")
IS_MOSQUITTO: Final = NAME == "mosquitto"
OWN: Final = pytest.mark.skipif(IS_MOSQUITTO, reason="what only a gateway has")
STRICT: Final = pytest.mark.skipif(IS_MOSQUITTO, reason="Mosquitto 2.0 does not do this")

RECEIVE_MAXIMUM: Final = 20
_READY_S_MAX: Final = 30.0
_SETTINGS: Final = {
    "adapters.mqtt.bind": "127.0.0.1:0",
    "adapters.mqtt.websocket.bind": "127.0.0.1:0",
    "adapters.mqtt.session.receive_max": RECEIVE_MAXIMUM,
    "adapters.mqtt.session.inflight_max": RECEIVE_MAXIMUM,
    "adapters.mqtt.sys_interval_s": 1,
}
_MOSQUITTO: Final = """\
persistence false
allow_anonymous true
sys_interval 1
max_inflight_messages {receive_maximum}
listener {port} 127.0.0.1
listener {websocket_port} 127.0.0.1
protocol websockets
"""


@dataclass(frozen=True)
class Target:
    """Endpoints for clients, all on 127.0.0.1; ``bootstrap`` is the Kafka endpoint, if any."""

    port: int
    websocket_port: int
    websocket_path: str = "/mqtt"
    bootstrap: str = ""


def port_of(lines: list[str], name: str) -> int:
    """Return the port that the ready line tells for an endpoint."""
    ready = next(line for line in lines if line.startswith("headgate ready"))
    found = re.search(rf" {name} \S*:(\d+)", ready)
    assert found, f"no {name} in {ready!r}"
    return int(found[1])


@contextlib.contextmanager
def running_target(folder: Path) -> Iterator[Target]:
    """Run what ``HEADGATE_MQTT_TARGET`` names until the block ends."""
    if IS_MOSQUITTO:
        yield from _mosquitto(folder)
        return
    with gateway_target(Gateway(folder / "data")) as target:
        yield target


@contextlib.contextmanager
def gateway_target(gateway: Gateway) -> Iterator[Target]:
    """Run a gateway, with the settings of the suites beside its own, until the block ends."""
    gateway.settings.update(_SETTINGS)
    with gateway:
        program = gateway.program
        assert program is not None
        program.wait_for_line("headgate ready", within_s=_READY_S_MAX)
        yield Target(
            port=port_of(gateway.lines, "mqtt"),
            websocket_port=port_of(gateway.lines, "mqtt-ws"),
            bootstrap=gateway.bootstrap,
        )


def _mosquitto(folder: Path) -> Iterator[Target]:
    need("mosquitto")
    target = Target(port=free_port(), websocket_port=free_port())
    config = folder / "mosquitto.conf"
    config.write_text(
        _MOSQUITTO.format(
            port=target.port,
            websocket_port=target.websocket_port,
            receive_maximum=RECEIVE_MAXIMUM,
        )
    )
    program = Program(["mosquitto", "-c", config])
    try:
        program.wait_for_line("running", within_s=_READY_S_MAX)
        yield target
    finally:
        program.stop()
