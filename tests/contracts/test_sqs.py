"""SQS passes the suite of every protocol adapter."""

import json
import re
from collections.abc import Generator
from typing import Any, ClassVar, Final

import pytest

from gateway.testing.adapter_client import AdapterClient, Credentials, NotAccepted
from gateway.testing.gateway_process import GatewayProcess
from tests.contracts.this_tree import TreeAdapterContract
from tests.support.hostile.sqs_signed import signed
from tests.support.hostile.users import User

_QUEUE: Final = "contract"
_OK: Final = "200"


class SqsClient(AdapterClient):
    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._url = f"http://127.0.0.1:{port}/000000000000/{_QUEUE}"
        self._credentials: Credentials | None = None

    def log_in(self, credentials: Credentials | None) -> None:
        """Sign each request from now on: HTTP has no login."""
        self._credentials = credentials

    def encode_message(self, body: bytes) -> bytes:
        return self._request("SendMessage", MessageBody=body.decode())

    def wait_acknowledged(self) -> None:
        self._answer()

    def ask(self, action: str, **params: object) -> dict[str, Any]:
        self.send_bytes(self._request(action, **params))
        return self._answer()

    def _request(self, action: str, **params: object) -> bytes:
        body = json.dumps({"QueueUrl": self._url, **params}).encode()
        raw = (
            "POST / HTTP/1.1\r\nHost: localhost\r\n"
            "Content-Type: application/x-amz-json-1.0\r\n"
            f"X-Amz-Target: AmazonSQS.{action}\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        if self._credentials is None:
            return raw
        key_id, secret = self._credentials
        return signed(raw, User("", secret, key_id))

    def _answer(self) -> dict[str, Any]:
        head = self.read_until(b"\r\n\r\n").decode()
        length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
        body = self.read(int(length[1])) if length else b""
        if head.split(" ")[1] != _OK:
            raise NotAccepted(f"{head} {body!r}")
        return dict(json.loads(body or b"{}"))


@pytest.mark.xdist_group("contract-sqs")  # its tests share gateways
class TestSqs(TreeAdapterContract):
    adapter = "sqs"
    settings: ClassVar = {
        "queues": [{"name": _QUEUE}],
        "adapters.sqs.request_bytes_max": 65_536,
    }
    broken_bytes = b"\x00\x01\r\n\r\n"
    too_large_bytes = 100_000

    def connect(self, port: int) -> SqsClient:
        return SqsClient(port)

    def received(
        self, gateway: GatewayProcess, credentials: Credentials | None
    ) -> Generator[bytes, None, None]:
        with self.connect(gateway.ports["sqs"]) as client:
            client.log_in(credentials)
            while True:
                answer = client.ask("ReceiveMessage", WaitTimeSeconds=20)
                for message in answer.get("Messages", []):
                    client.ask("DeleteMessage", ReceiptHandle=message["ReceiptHandle"])
                    yield message["Body"].encode()

    def add_user(self, gateway: GatewayProcess, name: str) -> Credentials:
        """Add a user with an access key."""
        super().add_user(gateway, name)
        made = json.loads(
            "\n".join(gateway.run_command("users", "keys", "add", name, "--json"))
        )
        return Credentials(made["key_id"], made["secret"])
