"""The endpoint that is judged, and connections to it; each test has names of its own."""

import uuid
from collections.abc import Iterator

import pytest

from tests.support.amqp_raw import RawAmqp
from tests.support.amqp_target import AmqpTarget, running_amqp


class Rig:
    """Connections of one test, closed at its end."""

    def __init__(self, target: AmqpTarget) -> None:
        self.target = target
        self.stem = uuid.uuid4().hex[:12]
        self._clients: list[RawAmqp] = []

    def name(self, suffix: str = "q") -> str:
        """Return a name that no other test has."""
        return f"{suffix}-{self.stem}"

    def raw(self) -> RawAmqp:
        """Return a connection on which nothing was sent."""
        client = RawAmqp(self.target.port)
        self._clients.append(client)
        return client

    def client(self) -> RawAmqp:
        """Return an open connection with channel 1."""
        client = self.raw().open()
        client.channel(1)
        return client

    def close(self) -> None:
        """End all connections."""
        for client in self._clients:
            client.close()


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpTarget]:
    """Address that the clients connect to."""
    with running_amqp(tmp_path_factory.mktemp("amqp")) as running:
        yield running


@pytest.fixture
def rig(target: AmqpTarget) -> Iterator[Rig]:
    """Connections of this test."""
    rig = Rig(target)
    yield rig
    rig.close()


@pytest.fixture
def name() -> str:
    """Name that no other test has."""
    return f"m-{uuid.uuid4().hex[:12]}"
