"""Kafka passes the suite of every protocol adapter."""

import struct
from collections.abc import Generator
from typing import ClassVar, Final

import pytest

from gateway.records.codec import decode_batch
from gateway.testing.adapter_client import AdapterClient, Credentials, NotAccepted
from gateway.testing.gateway_process import GatewayProcess
from tests.contracts.this_tree import TreeAdapterContract
from tests.support.kafka_wire import (
    FETCH,
    PRODUCE,
    batch,
    fetch_body,
    fetch_records,
    produce_body,
    produce_errors,
    request,
    text,
)

_TOPIC: Final = "contract"
_SASL_HANDSHAKE: Final = 17
_SASL_AUTHENTICATE: Final = 36


class KafkaClient(AdapterClient):
    def log_in(self, credentials: Credentials | None) -> None:
        if credentials is None:
            return
        self.check(self.ask(_SASL_HANDSHAKE, 1, text("PLAIN")))
        token = f"\0{credentials.name}\0{credentials.secret}".encode()
        self.check(self.ask(_SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token))

    def encode_message(self, body: bytes) -> bytes:
        return request(PRODUCE, 3, 0, produce_body([(_TOPIC, 0, batch([body]))]))

    def wait_acknowledged(self) -> None:
        code, _ = produce_errors(self.answer())[0]
        if code:
            raise NotAccepted(code)

    def fetch(self, offset: int) -> bytes:
        """Return the batches from an offset on."""
        code, _, records = fetch_records(self.ask(FETCH, 4, fetch_body(_TOPIC, 0, offset)))
        assert code == 0
        return records

    def ask(self, api_key: int, version: int, body: bytes) -> bytes:
        self.send_bytes(request(api_key, version, 0, body))
        return self.answer()

    def answer(self) -> bytes:
        """Return the next answer without its correlation id."""
        return self.read(struct.unpack(">i", self.read(4))[0])[4:]

    def check(self, answer: bytes) -> None:
        (code,) = struct.unpack_from(">h", answer)
        if code:
            raise NotAccepted(code)


@pytest.mark.xdist_group("contract-kafka")  # its tests share gateways
class TestKafka(TreeAdapterContract):
    adapter = "kafka"
    settings: ClassVar = {
        "topics": [{"name": _TOPIC}],
        "adapters.kafka.request_bytes_max": 65_536,
    }
    broken_bytes = b"\xff" * 16
    too_large_bytes = 100_000

    def connect(self, port: int) -> KafkaClient:
        return KafkaClient(port)

    def received(
        self, gateway: GatewayProcess, credentials: Credentials | None
    ) -> Generator[bytes, None, None]:
        offset = 0
        with self.connect(gateway.ports["kafka"]) as client:
            client.log_in(credentials)
            while True:
                records = client.fetch(offset)
                at = 0
                while at < len(records):
                    end = at + 12 + struct.unpack_from(">i", records, at + 8)[0]
                    for record in decode_batch(records[at:end]):
                        assert record.value is not None
                        yield bytes(record.value)
                        offset = record.offset + 1
                    at = end
