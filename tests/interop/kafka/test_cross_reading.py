"""Every client reads the records of every client: one partition, batches of all."""

from typing import cast

import pytest

from tests.interop.kafka.clients import Client
from tests.interop.kafka.conftest import ALL_CLIENTS
from tests.interop.kafka.programs.protocol import Message
from tests.support.topics import create_topic

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.go,
    pytest.mark.kcat,
    pytest.mark.xdist_group("cross-reading"),
]

COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]
EACH = 20


@pytest.fixture(scope="module")
def written(bootstrap: str) -> tuple[str, list[bytes]]:
    """A topic with records of every client in one compression, and the values in order."""
    topic = create_topic(bootstrap)
    values: list[bytes] = []
    for number, param in enumerate(ALL_CLIENTS):
        writer = cast("Client", param.values[0])
        compression = COMPRESSIONS[number % len(COMPRESSIONS)]
        mine = [f"{writer.name} wrote {n} in {compression}".encode() for n in range(EACH)]
        messages = [Message(value, key=b"k", partition=0) for value in mine]
        writer.produce(bootstrap, topic, messages, compression=compression)
        values += mine
    return topic, values


def test_every_client_reads_what_every_other_wrote(
    client: Client, bootstrap: str, written: tuple[str, list[bytes]]
) -> None:
    topic, values = written

    found = client.consume(bootstrap, topic, count=len(values))

    assert [message.value for message in found] == values
    assert [message.offset for message in found] == list(range(len(values)))
