"""Incremental fetch sessions answer as Apache Kafka's do: the same requests to both."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.support.fetch_sessions import BY_ID, BY_NAME, FINAL, FULL, Answer, call, topic_id
from tests.support.gateway import Gateway
from tests.support.kafka_server import KafkaServer
from tests.support.kafka_wire import Connection, batch
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.java]

PARTITIONS: Final = 4
WAIT_MS: Final = 100
READY_S_MAX: Final = 180
Step = Callable[["Client"], None]


@dataclass
class Client:
    """A client of one broker; ``seen`` are its answers without what differs by broker."""

    connection: Connection
    topic: str
    uuid: Any
    session_id: int = 0
    seen: list[Any] = field(default_factory=list)

    def fetch(
        self,
        epoch: int,
        wanted: dict[int, int] | None = None,
        *,
        session: int | None = None,
        by_id: bool = False,
        forgotten: tuple[int, ...] = (),
        **limits: Any,
    ) -> None:
        """Fetch offsets by partition; the session is that of the last answer."""
        ref = self.uuid if by_id else self.topic
        answer = call(
            self.connection,
            BY_ID if by_id else BY_NAME,
            self.session_id if session is None else session,
            epoch,
            {(ref, number): offset for number, offset in (wanted or {}).items()},
            forgotten=[(ref, number) for number in forgotten],
            **{"wait_ms": WAIT_MS, **limits},
        )
        if not answer.error_code:
            self.session_id = answer.session_id
        self.seen.append(_comparable(answer))

    def append(self, *numbers: int) -> None:
        """Append a batch of one record to each partition."""
        for number in numbers:
            code, _ = self.connection.produce(
                self.topic, number, batch([b"v" * 50], timestamp_ms=1_700_000_000_000)
            )
            assert code == 0


def _comparable(answer: Answer) -> Any:
    """Return an answer without ids: those of sessions are random."""
    partitions = {
        number: (
            (part.error_code,) if part.error_code
            else (part.high_watermark, part.log_start_offset, len(part.records))
        )
        for (_, number), part in answer.partitions.items()
    }  # fmt: skip
    return answer.error_code, bool(answer.session_id), partitions


def news(client: Client) -> None:
    """Append, read on, read again, add and forget."""
    client.fetch(FULL, {0: 0, 1: 0, 2: 0})
    client.fetch(1)
    client.append(1)
    client.fetch(2)
    client.fetch(3)
    client.fetch(4, {1: 1})
    client.fetch(5, {3: 0})
    client.fetch(6)
    client.append(0, 3)
    client.fetch(7, forgotten=(0,))
    client.fetch(8, {3: 1})
    client.fetch(9, {0: 0, 3: 0}, forgotten=(3,))


def epochs(client: Client) -> None:
    """Send wrong epochs and unknown sessions."""
    client.fetch(FULL, {0: 0})
    for epoch in (2, 0x7FFFFFFF, -2):
        client.fetch(epoch)
    client.fetch(1)
    client.fetch(1)
    client.fetch(2)
    for session, epoch in ((0, 1), (0, -2), (-5, 3)):
        client.fetch(epoch, {0: 0}, session=session)
    client.fetch(3)


def endings(client: Client) -> None:
    """End sessions in every way."""
    client.fetch(FULL, {0: 0, 1: 0})
    client.fetch(1, forgotten=(0, 1))
    client.fetch(FULL, {0: 0})
    first = client.session_id
    client.fetch(FULL, {1: 0})
    client.fetch(1, session=first)
    client.fetch(1)
    second = client.session_id
    client.fetch(FINAL)
    client.fetch(2, session=second)
    client.fetch(FINAL, {0: 0}, session=0)
    client.fetch(FULL, {0: 0})
    client.fetch(1, {1: 0}, forgotten=(0, 1))


def names_and_ids(client: Client) -> None:
    """Use sessions of names by ids, and the reverse."""
    client.fetch(FULL, {0: 0})
    client.fetch(1, by_id=True)
    client.fetch(2, by_id=True)
    client.fetch(1)
    client.fetch(FULL, {0: 0}, by_id=True, session=0)
    client.fetch(1)
    client.append(0)
    client.fetch(1, by_id=True)
    client.fetch(2, {0: 1}, by_id=True)


def turns(client: Client) -> None:
    """Read partitions in turn under a byte limit."""
    client.fetch(FULL, {0: 0, 1: 0, 2: 0})
    client.append(0, 1, 2)
    for epoch in range(1, 7):
        client.fetch(epoch, bytes_max=1)
    client.fetch(7, {1: 1}, bytes_max=1)
    client.fetch(8, bytes_max=1)


def errors(client: Client) -> None:
    """Fetch what is out of range or does not exist, then what is right."""
    client.fetch(FULL, {0: 0, 9: 0})
    client.fetch(1, {1: 77})
    client.fetch(2)
    client.fetch(3, {1: 0})
    client.fetch(4, forgotten=(9,))
    client.fetch(5)


def empty(client: Client) -> None:
    """Make a session without partitions, and add one."""
    client.fetch(FULL)
    client.fetch(1, {0: 0})


SCRIPTS: Final[list[Step]] = [news, epochs, endings, names_and_ids, turns, errors, empty]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Gateway | KafkaServer]]:
    """Return a gateway and Apache Kafka."""
    folder = tmp_path_factory.mktemp("sessions")
    with Gateway(folder / "headgate") as gateway, KafkaServer(folder / "kafka") as kafka:
        yield [gateway, kafka]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_script_of_requests_has_the_same_answers(
    brokers: list[Gateway | KafkaServer], script: Step
) -> None:
    ours, theirs = (_answers(broker, script) for broker in brokers)
    assert ours == theirs


def _answers(broker: Gateway | KafkaServer, script: Step) -> list[Any]:
    topic = create_topic(broker.bootstrap, partitions=PARTITIONS)
    with Connection(broker.kafka_port) as connection:
        client = Client(connection, topic, topic_id(broker.bootstrap, topic))
        wait_until(
            lambda: _is_led(client), within_s=READY_S_MAX, what=f"{topic} has its leader"
        )
        script(client)
    return client.seen


def _is_led(client: Client) -> bool:
    """Return whether no partition has an error: Kafka's leaders come after the metadata."""
    wanted = {(client.topic, number): 0 for number in range(PARTITIONS)}
    answer = call(client.connection, BY_NAME, 0, FINAL, wanted)
    return not any(part.error_code for part in answer.partitions.values())
