"""The line protocol keeps the contract of every protocol."""

import json
from collections.abc import Generator
from typing import ClassVar

from gateway.testing.adapter import AdapterContract
from gateway.testing.adapter_client import Credentials
from gateway.testing.gateway_process import GatewayProcess
from tests.lines_client import LinesClient


class TestLines(AdapterContract):
    adapter = "lines"
    settings: ClassVar = {
        "storage.adapter": "drawer",
        "queues": [{"name": "contract"}],
        "adapters.lines.line_bytes_max": 1_000,
    }
    broken_bytes = b"PING \xff\n"
    too_large_bytes = 2_000

    def connect(self, port: int) -> LinesClient:
        return LinesClient(port)

    def received(
        self, gateway: GatewayProcess, credentials: Credentials | None
    ) -> Generator[bytes, None, None]:
        with self.connect(gateway.ports["lines"]) as client:
            client.log_in(credentials)
            while True:
                answer = client.accepted(client.ask("TAKE contract"))
                if answer == "+NONE":
                    continue
                _, _, partition, offset, attempt, text = answer.split(" ", 5)
                client.accepted(client.ask(f"DONE contract {partition} {offset} {attempt}"))
                yield json.loads(text).encode()
