"""The AMQP endpoint that is judged: a gateway of this test process, or a RabbitMQ.

``HEADGATE_AMQP_TARGET=PORT`` turns the suites on a RabbitMQ that listens on that port of
127.0.0.1, and has its HTTP API at ``HEADGATE_AMQP_MANAGEMENT=PORT``; what is green there asks for
what RabbitMQ does. ``OWN`` marks what only a gateway has,
``NEWER`` what RabbitMQ does from version 4 on and Debian's 3.10 does not.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support.gateway import Gateway
from tests.support.mqtt_target import port_of

PORT: Final = os.environ.get("HEADGATE_AMQP_TARGET", "")
MANAGEMENT_PORT: Final = os.environ.get("HEADGATE_AMQP_MANAGEMENT", "15672")
IS_RABBITMQ: Final = bool(PORT)
OWN: Final = pytest.mark.skipif(IS_RABBITMQ, reason="what only a gateway has")
NEWER: Final = pytest.mark.skipif(IS_RABBITMQ, reason="RabbitMQ 3.10 does not do this")
_READY_S_MAX: Final = 180.0


@dataclass(frozen=True)
class AmqpTarget:
    """Endpoints for clients, on 127.0.0.1; ``bootstrap`` is the Kafka endpoint, if any.

    ``management_port``: that of the HTTP API.
    """

    port: int
    bootstrap: str = ""
    management_port: int = 0

    @property
    def url(self) -> str:
        """URL of the default vhost."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"


@contextlib.contextmanager
def running_amqp(folder: Path) -> Iterator[AmqpTarget]:
    """Run the endpoint until the block ends."""
    if IS_RABBITMQ:
        yield AmqpTarget(int(PORT), management_port=int(MANAGEMENT_PORT))
        return
    settings = {
        "adapters.amqp.bind": "127.0.0.1:0",
        "adapters.amqp.management.bind": "127.0.0.1:0",
    }
    gateway = Gateway(folder / "data", settings)
    with gateway:
        program = gateway.program
        assert program is not None
        program.wait_for_line("headgate ready", within_s=_READY_S_MAX)
        yield AmqpTarget(
            port_of(gateway.lines, "amqp"),
            gateway.bootstrap,
            port_of(gateway.lines, "rabbitmq-api"),
        )
