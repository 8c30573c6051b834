"""The endpoint that is judged, and connections to it; each test has names of its own."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.mqtt_raw import RawClient
from tests.support.mqtt_target import IS_MOSQUITTO, Target, running_target
from tests.support.mqtt_wire import V5, Received


class Rig:
    """Connections of one test, closed at its end."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.stem = uuid.uuid4().hex[:12]
        self._clients: list[RawClient] = []

    def topic(self, levels: str = "t") -> str:
        """Return a topic name or filter that no other test has."""
        return f"{self.stem}/{levels}"

    def name(self, suffix: str = "") -> str:
        """Return a client identifier of at most 23 letters and digits."""
        return f"{self.stem}{suffix}"

    def raw(self, version: int = V5) -> RawClient:
        """Return a connection on which nothing was sent."""
        client = RawClient(self.target.port, version=version, is_strict=not IS_MOSQUITTO)
        self._clients.append(client)
        return client

    def client(self, suffix: str = "", version: int = V5, **connect: Any) -> RawClient:
        """Return a connection after its CONNACK; a fresh identifier unless a suffix is given."""
        client = self.raw(version)
        suffix = suffix or f"n{len(self._clients)}"
        client.connect(self.name(suffix), **connect)
        return client

    def resumed(self, suffix: str, version: int = V5, **connect: Any) -> RawClient:
        """Return a connection that goes on with a session, or begins one that is kept."""
        if version == V5:
            connect.setdefault("found", [(0x11, 300)])
        return self.client(suffix, version, clean=False, **connect)

    def subscriber(self, levels: str = "t", options: int = 2, version: int = V5) -> RawClient:
        """Return a connection with one subscription."""
        client = self.client(version=version)
        assert client.subscribe((self.topic(levels), options)) == [options & 3]
        return client

    def retained(self, topic: str) -> list[Received]:
        """Return what a new subscriber gets at once, then nothing until a marker comes."""
        with_marker = self.client()
        marker = self.topic("marker")
        with_marker.subscribe((topic, 2))
        with_marker.subscribe_past_messages((marker, 1))
        return self.before_marker(with_marker, marker)

    def before_marker(self, subscriber: RawClient, topic: str, qos: int = 1) -> list[Received]:
        """Publish to a topic that the subscriber has and return what comes before it."""
        self.client().publish(topic, b"marker", qos=qos)
        return subscriber.messages_until(b"marker")

    def close(self) -> None:
        """End all connections."""
        for client in self._clients:
            client.drop()


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Address that the clients connect to."""
    with running_target(tmp_path_factory.mktemp("mqtt")) as running:
        yield running


@pytest.fixture
def rig(target: Target) -> Iterator[Rig]:
    """Connections of this test."""
    rig = Rig(target)
    yield rig
    rig.close()
