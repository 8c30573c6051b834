"""Gateways that speak STOMP, and connections to them."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Final

import pytest

from gateway.testing.fixtures import StartGateway
from gateway.testing.gateway_process import GatewayProcess
from tests.stomp_client import StompClient

Connect = Callable[..., StompClient]


SETTINGS: Final = {
    "adapters.stomp.transaction_bytes_max": 2_000,
    "adapters.stomp.transactions_max": 2,
    "adapters.stomp.subscriptions_max": 3,
    "queues": [
        {"name": "dead"},
        {"name": "jobs", "attempts_max": 3, "dead_letter_topic": "dead"},
    ],
    "exchanges": [{"name": "prices", "type": "topic"}],
}
"""Two queues: the messages that jobs rejects go to dead."""
_NUMBERS: Final = itertools.count()


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """Return a gateway that no test of a file ends."""
    folder = tmp_path_factory.mktemp("shared")
    with GatewayProcess(folder, ["stomp"], SETTINGS) as gateway:
        yield gateway


@pytest.fixture
def gateway(start_gateway: StartGateway) -> GatewayProcess:
    """Return a gateway of the test's own, to be killed; positions are few."""
    return start_gateway("stomp", settings={**SETTINGS, "adapters.stomp.positions_max": 2})


@pytest.fixture
def name() -> str:
    """Return a name that no other test has."""
    return f"name-{next(_NUMBERS)}"


@pytest.fixture
def work(name: str) -> str:
    """Return the destination of a queue of the test's own."""
    return f"/queue/{name}"


@pytest.fixture
def connect(shared_gateway: GatewayProcess) -> Iterator[Connect]:
    """Open connections to the shared gateway, which have logged in, and end with the test."""
    with ExitStack() as stack:
        yield partial(_opened, stack, shared_gateway)


@pytest.fixture
def connect_own(gateway: GatewayProcess) -> Iterator[Connect]:
    """Open connections to the test's own gateway."""
    with ExitStack() as stack:
        yield partial(_opened, stack, gateway)


def _opened(stack: ExitStack, gateway: GatewayProcess, version: str = "1.2") -> StompClient:
    client = stack.enter_context(StompClient(gateway.ports["stomp"]))
    client.version = version
    client.log_in(None)
    return client
