"""Bootstrap address of the clients: a gateway of this test process, or a named broker.

``HEADGATE_INTEROP_BOOTSTRAP=127.0.0.1:19092`` turns the suite on that broker; on Apache Kafka
it shows that the suite asks for what Kafka does.
"""

import os
from collections.abc import Iterator

import pytest

from tests.interop.kafka.clients import (
    AIOKAFKA,
    CONFLUENT,
    FRANZ,
    JAVA,
    KAFKA_PYTHON,
    KCAT,
    Client,
)
from tests.support.gateway import Gateway

collect_ignore_glob = ["programs/*"]  # they run as processes of their own

ALL_CLIENTS = [
    pytest.param(CONFLUENT, id="confluent"),
    pytest.param(AIOKAFKA, id="aiokafka"),
    pytest.param(KAFKA_PYTHON, id="kafka-python"),
    pytest.param(KCAT, id="kcat", marks=pytest.mark.kcat),
    pytest.param(JAVA, id="java", marks=pytest.mark.java),
    pytest.param(FRANZ, id="franz-go", marks=pytest.mark.go),
]


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the bootstrap address."""
    named = os.environ.get("HEADGATE_INTEROP_BOOTSTRAP")
    if named:
        yield named
        return
    with Gateway(tmp_path_factory.mktemp("interop") / "data") as gateway:
        yield gateway.bootstrap


@pytest.fixture(params=ALL_CLIENTS)
def client(request: pytest.FixtureRequest) -> Client:
    """Return each stock client in turn."""
    found: Client = request.param
    return found
