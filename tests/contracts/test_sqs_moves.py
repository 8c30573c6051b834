"""Deduplication ids and receive attempts of FIFO queues that move to another node."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from adapters.sqs.messages.outgoing import OutgoingMessage
from adapters.sqs.messages.sending import send
from gateway.errors import NotLeader
from gateway.model import TopicName
from gateway.placement import shard_of
from tests.support.sqs_raw import JsonClient
from tests.support.two_nodes import HOSTS, TwoNodes
from tests.support.waiting import wait_until

MOVING: Final = "moving.fifo"
OTHERS: Final = [f"other-{n}.fifo" for n in range(8)]
"""Queues, of which the hash puts some into another shard than ``MOVING``."""
DECLARED: Final = "".join(
    f'[[queues]]\nname = "{name}"\norder = "key"\n' for name in (MOVING, *OTHERS)
)
FIRST, SECOND = 0, 1


class Clients(NamedTuple):
    """A client of each node."""

    nodes: TwoNodes
    of: tuple[JsonClient, JsonClient]

    def send(self, node: int, queue: str, body: str, dedup_id: str) -> str:
        """Send a message; return its id."""
        found = self.of[node].call(
            "SendMessage",
            QueueUrl=queue,
            MessageBody=body,
            MessageGroupId="g",
            MessageDeduplicationId=dedup_id,
        )
        return str(found["MessageId"])

    def receive(self, node: int, queue: str, attempt: str, **params: Any) -> list[Any]:
        """Return the messages that a receive attempt gets now."""
        found = self.of[node].call(
            "ReceiveMessage", QueueUrl=queue, ReceiveRequestAttemptId=attempt, **params
        )
        return list(found.get("Messages", []))

    def shard(self, queue: str) -> int:
        """Return the shard of a queue's only partition."""
        kernel = self.nodes.kernels[FIRST]
        topic = kernel.topics.get(TopicName("default", queue))
        return shard_of(topic, 0, kernel.placement)

    def move(self, queue: str, *, to: int) -> None:
        """Move the shard of a queue to a node."""
        self.nodes.move([self.shard(queue)], to=to)


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[Clients]:
    with ExitStack() as stack:
        nodes = stack.enter_context(TwoNodes(tmp_path, ["sqs"], DECLARED))
        port = nodes.ports["sqs"]
        first, second = (stack.enter_context(JsonClient(port, host=host)) for host in HOSTS)
        yield Clients(nodes, (first, second))


def test_an_id_that_another_node_took_is_a_duplicate_after_the_return(clients: Clients) -> None:
    before = clients.send(FIRST, MOVING, "one", "id-1")
    clients.move(MOVING, to=SECOND)
    assert clients.send(SECOND, MOVING, "one again", "id-1") == before
    meanwhile = clients.send(SECOND, MOVING, "two", "id-2")

    clients.move(MOVING, to=FIRST)

    assert clients.send(FIRST, MOVING, "two again", "id-2") == meanwhile
    assert clients.send(FIRST, MOVING, "one again", "id-1") == before
    got = clients.receive(FIRST, MOVING, "try-1", MaxNumberOfMessages=10)
    assert [message["Body"] for message in got] == ["one", "two"]


def test_a_send_is_answered_when_its_queue_leaves_as_the_window_is_read(
    clients: Clients,
) -> None:
    nodes, shard = clients.nodes, clients.shard(MOVING)
    node = nodes.adapter(FIRST, "sqs").node
    answers: list[object] = []
    sent: list[OutgoingMessage] = []

    def begin() -> None:
        queue = nodes.kernels[FIRST].queues.find(TopicName("default", MOVING))
        assert queue is not None
        rules = node.messages.rules_of(queue)
        window = node.messages.window_of(queue)
        assert not window.is_ready
        window.when_ready(lambda _error: nodes.placements[FIRST].give([shard]))
        for body in (b"one", b"two"):
            message = OutgoingMessage(body, b"g")
            message.dedup_id = body.decode()
            sent.append(message)
        send(node, queue, rules, sent, lambda _messages, error: answers.append(error))

    nodes.call(begin)

    wait_until(lambda: len(answers) == len(sent), within_s=60, what="the sends are answered")
    assert [type(answer) for answer in answers] == [NotLeader, NotLeader]
    assert nodes.faults == []


def test_receive_attempts_are_forgotten_of_the_queue_that_leaves_only(
    clients: Clients,
) -> None:
    staying = next(name for name in OTHERS if clients.shard(name) != clients.shard(MOVING))
    got = {}
    for queue in (MOVING, staying):
        clients.send(FIRST, queue, "one", "id-1")
        got[queue] = clients.receive(FIRST, queue, "try-1")
        assert clients.receive(FIRST, queue, "try-1") == got[queue] != []

    clients.move(MOVING, to=SECOND)
    clients.move(MOVING, to=FIRST)

    assert clients.receive(FIRST, staying, "try-1") == got[staying]
    assert clients.receive(FIRST, MOVING, "try-1") == []  # it is in flight
    handle = got[MOVING][0]["ReceiptHandle"]
    clients.of[FIRST].call("DeleteMessage", QueueUrl=MOVING, ReceiptHandle=handle)
    assert clients.of[FIRST].attribute(MOVING, "ApproximateNumberOfMessagesNotVisible") == "0"
