"""STOMP keeps the contract of every protocol."""

from collections.abc import Generator
from typing import ClassVar

from gateway.testing.adapter import AdapterContract
from gateway.testing.adapter_client import Credentials
from gateway.testing.gateway_process import GatewayProcess
from tests.stomp_client import StompClient, frame


class TestStomp(AdapterContract):
    adapter = "stomp"
    settings: ClassVar = {
        "queues": [{"name": "contract"}],
        "adapters.stomp.body_bytes_max": 1_000,
    }
    broken_bytes = b"SEND\ndestination\n\n\0"
    too_large_bytes = 2_000

    def connect(self, port: int) -> StompClient:
        return StompClient(port)

    def received(
        self, gateway: GatewayProcess, credentials: Credentials | None
    ) -> Generator[bytes, None, None]:
        with self.connect(gateway.ports["stomp"]) as client:
            client.log_in(credentials)
            client.ask(
                "SUBSCRIBE", id=1, destination=client.queue, ack="client", prefetch_count=10
            )
            while True:
                message = client.answer("MESSAGE")
                client.send_bytes(frame("ACK", id=message.headers["ack"]))
                yield message.body
