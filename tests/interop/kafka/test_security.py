"""SASL and TLS with stock clients: every mechanism, on plain and encrypted listeners."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

from tests.support.certificates import make_certificate
from tests.support.gateway import ROOT, Gateway
from tests.support.waiting import wait_until

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
USER, PASSWORD = "alice", "wonderland"
VALUE = b"let in"

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("kafka-security")]


class Secured(NamedTuple):
    """A gateway with a user; ``ca`` is set if it uses TLS."""

    bootstrap: str
    ca: Path | None

    @property
    def protocol(self) -> str:
        return "SASL_SSL" if self.ca else "SASL_PLAINTEXT"


@pytest.fixture(scope="module", params=["plain", "tls"])
def secured(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    settings: dict[str, object] = {}
    ca = None
    if request.param == "tls":
        ca, key = make_certificate(folder)
        settings = {"adapters.kafka.tls_cert": ca, "adapters.kafka.tls_key": key}
    subprocess.run(
        [
            *(sys.executable, "-m", "gateway", "users", "add", USER, "--password-stdin"),
            *("--offline", "--set", f"node.data_dir={folder / 'data'}"),
        ],
        cwd=ROOT,
        input=f"{PASSWORD}\n".encode(),
        check=True,
        timeout=60,
    )
    with Gateway(folder / "data", settings) as gateway:
        yield Secured(gateway.bootstrap, ca)


def confluent_settings(secured: Secured, mechanism: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": secured.bootstrap,
        "security.protocol": secured.protocol,
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
        "log_level": 0,
        **({"ssl.ca.location": str(secured.ca)} if secured.ca else {}),
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent(secured: Secured, mechanism: str) -> None:
    topic = f"confluent-{uuid4()}"
    settings = confluent_settings(secured, mechanism, PASSWORD)
    producer = Producer(settings)
    producer.produce(topic, VALUE)
    assert producer.flush(30) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert message.value() == VALUE


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(secured: Secured, mechanism: str) -> None:
    topic = f"python-{uuid4()}"
    settings: dict[str, Any] = {
        "bootstrap_servers": secured.bootstrap,
        "security_protocol": secured.protocol,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
        **({"ssl_cafile": str(secured.ca)} if secured.ca else {}),
    }
    producer = KafkaProducer(**settings)
    producer.send(topic, VALUE).get(30)
    producer.close()
    consumer = KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **settings
    )
    assert next(iter(consumer)).value == VALUE
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka(secured: Secured, mechanism: str) -> None:
    topic = f"aio-{uuid4()}"
    settings: dict[str, Any] = {
        "bootstrap_servers": secured.bootstrap,
        "security_protocol": secured.protocol,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
        **({"ssl_context": create_ssl_context(cafile=str(secured.ca))} if secured.ca else {}),
    }
    async with asyncio.timeout(60), AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait(topic, VALUE)
        async with AIOKafkaConsumer(
            topic, auto_offset_reset="earliest", **settings
        ) as consumer:
            assert (await consumer.getone()).value == VALUE


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused(secured: Secured, mechanism: str) -> None:
    seen: list[KafkaError] = []
    settings = confluent_settings(secured, mechanism, "through the looking-glass")
    admin = AdminClient({**settings, "error_cb": seen.append})

    def is_told() -> bool:
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=1)
        admin.poll(0)  # hands the errors over
        return KafkaError._AUTHENTICATION in {error.code() for error in seen}

    wait_until(is_told, within_s=60, what="a refusal")


def test_nobody_gets_in_without_a_password(secured: Secured) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": secured.bootstrap,
        "security.protocol": "SSL" if secured.ca else "PLAINTEXT",
        "log_level": 0,
        **({"ssl.ca.location": str(secured.ca)} if secured.ca else {}),
    }
    with pytest.raises(KafkaException):
        AdminClient(settings).list_topics(timeout=3)
