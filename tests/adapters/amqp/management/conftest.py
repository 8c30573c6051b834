"""A node whose users and permissions come from RabbitMQ's definitions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.amqp_target import AmqpTarget
from tests.support.gateway import Gateway
from tests.support.mqtt_target import port_of

DEFINITIONS = Path(__file__).with_name("rabbitmq_3_10_8_definitions.json")
_READY_S_MAX = 60.0


def settings(**more: object) -> dict[str, object]:
    """Return the settings of a node with the API."""
    return {
        "adapters.amqp.bind": "127.0.0.1:0",
        "adapters.amqp.management.bind": "127.0.0.1:0",
        **more,
    }


def target_of(gateway: Gateway) -> AmqpTarget:
    """Return the endpoints of a node that has been started."""
    program = gateway.program
    assert program is not None
    program.wait_for_line("headgate ready", within_s=_READY_S_MAX)
    return AmqpTarget(
        port_of(gateway.lines, "amqp"),
        gateway.bootstrap,
        port_of(gateway.lines, "rabbitmq-api"),
    )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpTarget]:
    """Endpoints of a node that has imported the file at its start."""
    folder = tmp_path_factory.mktemp("amqp-definitions")
    found = settings(**{"adapters.amqp.definitions": str(DEFINITIONS)})
    with Gateway(folder / "data", found) as gateway:
        yield target_of(gateway)
