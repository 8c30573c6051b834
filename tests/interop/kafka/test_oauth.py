"""SASL OAUTHBEARER with stock clients, and logins that they make again (KIP-368)."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.support.gateway import Gateway
from tests.support.tokens import AUDIENCE, ISSUER, Authority, write_keys
from tests.support.waiting import wait_until

AUTHORITY = Authority()
USER = "alice"
VALUE = b"let in"
REAUTH_MS = 3_000
WITHIN_S = 60

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("kafka-oauth")]


class Served(NamedTuple):
    """A gateway with an authority."""

    gateway: Gateway

    @property
    def bootstrap(self) -> str:
        return self.gateway.bootstrap


@pytest.fixture(scope="module")
def served(tmp_path_factory: Any) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("oauth")
    settings = {
        "auth.required": "true",
        "auth.default": "allow",
        "oauth.jwks": write_keys(folder / "jwks.json", AUTHORITY),
        "oauth.issuer": ISSUER,
        "oauth.audience": f'["{AUDIENCE}"]',
        "adapters.kafka.connections_max_reauth_ms": REAUTH_MS,
    }
    with Gateway(folder / "data", settings) as gateway:
        yield Served(gateway)


def token(user: str = USER) -> str:
    return AUTHORITY.token(user, time.time() + 300)


def test_confluent_logs_in_and_again(served: Served) -> None:
    topic, asked = f"t-{uuid4().hex[:8]}", []

    def oauth_cb(_config: str) -> tuple[str, float]:
        asked.append(1)
        return token(), time.time() + 300

    config = {
        "bootstrap.servers": served.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": oauth_cb,
    }
    producer = Producer(config)
    sent: list[Any] = []
    began_s = time.monotonic()

    def has_lasted() -> bool:
        producer.produce(topic, VALUE, on_delivery=lambda error, _: sent.append(error))
        assert producer.flush(WITHIN_S) == 0
        return time.monotonic() - began_s > 2 * REAUTH_MS / 1_000

    wait_until(has_lasted, within_s=WITHIN_S, what="logins that ended", every_s=0.2)
    assert set(sent) == {None}
    assert sum(line.count("after the end") for line in served.gateway.lines) == 0
    group = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(config | group)
    consumer.subscribe([topic])
    found: list[Any] = []

    def polled() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value())
        return bool(found)

    wait_until(polled, within_s=WITHIN_S, what="a message")
    consumer.close()
    assert found[0] == VALUE


def test_confluent_with_a_bad_token_is_refused(served: Served) -> None:
    errors: list[Any] = []
    admin = AdminClient(
        {
            "bootstrap.servers": served.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (Authority("one").token(USER, time.time() + 300), 2e9),
            "error_cb": errors.append,
        }
    )

    def refused() -> bool:
        admin.poll(0.2)
        return any("uthentication" in str(error) for error in errors)

    wait_until(refused, within_s=WITHIN_S, what="a refusal")


def test_kafka_python_logs_in(served: Served) -> None:
    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return token()

    topic = f"t-{uuid4().hex[:8]}"
    config = {
        "bootstrap_servers": served.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Provider(),
    }
    producer = KafkaProducer(**config)
    producer.send(topic, VALUE).get(WITHIN_S)
    producer.close()
    consumer = KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=WITHIN_S * 1_000, **config
    )
    assert next(iter(consumer)).value == VALUE
    consumer.close()


def test_aiokafka_logs_in(served: Served) -> None:
    class Provider(AioTokenProvider):
        async def token(self) -> str:
            return token()

    async def round_trip() -> bytes:
        topic = f"t-{uuid4().hex[:8]}"
        config = {
            "bootstrap_servers": served.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": Provider(),
        }
        async with AIOKafkaProducer(**config) as producer:
            await producer.send_and_wait(topic, VALUE)
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **config) as consumer:
            message = await asyncio.wait_for(consumer.getone(), WITHIN_S)
        return bytes(message.value)

    assert asyncio.run(round_trip()) == VALUE
