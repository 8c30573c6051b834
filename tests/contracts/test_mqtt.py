"""MQTT passes the suite of every protocol adapter."""

from collections.abc import Generator
from typing import ClassVar, Final

import pytest

from gateway.testing.adapter_client import AdapterClient, Credentials, NotAccepted
from gateway.testing.gateway_process import GatewayProcess
from tests.contracts.this_tree import TreeAdapterContract
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import V5, Kind, Prop, Received

_TOPIC: Final = "contract/messages"
_READER: Final = "reader"
_SESSION_EXPIRY_S: Final = 3_600
_ERRORS_FROM: Final = 0x80


class MqttClient(AdapterClient):
    def __init__(self, port: int, client_id: str = "") -> None:
        super().__init__(port)
        self._client_id = client_id
        self._packet_id = 0

    def log_in(self, credentials: Credentials | None) -> None:
        expiry = [(Prop.SESSION_EXPIRY, _SESSION_EXPIRY_S)] if self._client_id else []
        self.send_bytes(
            wire.connect(
                self._client_id,
                clean=not self._client_id,
                found=expiry,
                username=credentials and credentials.name,
                password=credentials and credentials.secret.encode(),
            )
        )
        self.check(self.packet(Kind.CONNACK))

    def encode_message(self, body: bytes) -> bytes:
        self._packet_id = self._packet_id % 65_535 + 1
        return wire.publish(_TOPIC, body, qos=1, packet_id=self._packet_id)

    def wait_acknowledged(self) -> None:
        self.check(self.packet(Kind.PUBACK))

    def packet(self, kind: Kind) -> Received:
        """Return the next packet, which is of a kind; after a DISCONNECT comes the end."""
        first, size_bytes, shift = self.read(1)[0], 0, 0
        while True:
            digit = self.read(1)[0]
            size_bytes |= (digit & 0x7F) << shift
            shift += 7
            if digit < 0x80:
                break
        found = Received(first, self.read(size_bytes), V5)
        if found.kind is Kind.DISCONNECT:
            self.read(1)
        assert found.kind is kind, found
        return found

    def check(self, answer: Received) -> None:
        if answer.code >= _ERRORS_FROM:
            raise NotAccepted(hex(answer.code))


@pytest.mark.xdist_group("contract-mqtt")  # its tests share gateways
class TestMqtt(TreeAdapterContract):
    adapter = "mqtt"
    settings: ClassVar = {
        "adapters.mqtt.websocket.enabled": False,
        "adapters.mqtt.packet_bytes_max": 65_536,
    }
    broken_bytes = b"\x00\x00"
    too_large_bytes = 100_000

    def connect(self, port: int) -> MqttClient:
        return MqttClient(port)

    def reader(self, gateway: GatewayProcess, credentials: Credentials | None) -> MqttClient:
        """Connect to a session that outlives its connections."""
        client = MqttClient(gateway.ports["mqtt"], _READER)
        client.log_in(credentials)
        return client

    def prepare(self, gateway: GatewayProcess, credentials: Credentials | None) -> None:
        with self.reader(gateway, credentials) as client:
            client.send_bytes(wire.subscribe(1, [(_TOPIC, 1)]))
            assert client.packet(Kind.SUBACK).codes == [1]

    def received(
        self, gateway: GatewayProcess, credentials: Credentials | None
    ) -> Generator[bytes, None, None]:
        with self.reader(gateway, credentials) as client:
            while True:
                message = client.packet(Kind.PUBLISH)
                client.send_bytes(wire.ack(Kind.PUBACK, message.packet_id))
                yield message.payload
