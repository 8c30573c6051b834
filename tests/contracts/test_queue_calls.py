"""An operator looks into a queue, by a node that does not own the queue's partitions."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.admin.token import read_token
from gateway.cli.admin_client import AdminClient, Refused
from gateway.model import TopicName
from gateway.placement import shard_of
from gateway.shards.model import NoLink
from tests.support.lossy_network import Chances, LossyNetwork
from tests.support.sqs_raw import JsonClient
from tests.support.two_nodes import HOSTS, TwoNodes

DECLARED: Final = (
    '[[queues]]\nname = "work"\n[[queues]]\nname = "wide"\npartitions = 8\n'
    '[[queues]]\nname = "ordered.fifo"\norder = "key"\n'
)
MESSAGES: Final = 6
CALLS: Final = 30
BOTH: Final = (0, 1)


class Operators:
    """An operator at each node. The second node has ``work``, and a part of ``wide``."""

    def __init__(self, nodes: TwoNodes) -> None:
        self.nodes = nodes
        self.of = [self._client(index) for index in BOTH]

    def _client(self, index: int) -> AdminClient:
        settings = self.nodes.kernels[index].settings
        token = read_token(Path(settings.node.data_dir))
        return AdminClient(f"http://{settings.admin.bind}", token)

    def shards(self, name: str) -> list[int]:
        kernel = self.nodes.kernels[0]
        topic = kernel.topics.get(TopicName("default", name))
        numbers = range(len(topic.partition_ids))
        return sorted({shard_of(topic, number, kernel.placement) for number in numbers})

    def show(self, index: int, name: str) -> dict[str, Any]:
        found = self.of[index].get("queues", name)
        return {key: found[key] for key in ("counts", "partitions")}

    def peek(self, index: int, name: str, **query: object) -> dict[str, Any]:
        """Return what is shown, without the ages, which change."""
        asked = {key: str(value) for key, value in query.items()}
        found = self.of[index].get("queues", name, "messages", query=asked)
        for message in found["messages"]:
            del message["age_ms"]
        return found

    def refusal(self, index: int, *path: str, method: str = "GET") -> str:
        with pytest.raises(Refused) as info:
            self.of[index].send(method, *path)
        return info.value.kind


@pytest.fixture
def operators(tmp_path: Path) -> Iterator[Operators]:
    with ExitStack() as stack:
        nodes = stack.enter_context(TwoNodes(tmp_path, ["sqs"], DECLARED))
        client = stack.enter_context(JsonClient(nodes.ports["sqs"], host=HOSTS[0]))
        for number in range(MESSAGES):
            for name in ("work", "wide"):
                client.call("SendMessage", QueueUrl=name, MessageBody=f"{number}")
        client.call("ReceiveMessage", QueueUrl="work", VisibilityTimeout=600)
        operators = Operators(nodes)
        away = {*operators.shards("work"), *operators.shards("wide")[::2]}
        nodes.move([*away, *operators.shards("ordered.fifo")], to=1)
        yield operators


def test_any_node_shows_the_queue(operators: Operators) -> None:
    for index in BOTH:
        counts = {"ready": MESSAGES - 1, "in_flight": 1, "delayed": 0}
        assert operators.show(index, "work") == {"counts": counts, "partitions": 1}
        counts = {"ready": MESSAGES, "in_flight": 0, "delayed": 0}
        assert operators.show(index, "wide") == {"counts": counts, "partitions": 8}
        age_ms = operators.of[index].get("queues", "wide")["oldest_age_ms"]
        assert age_ms is not None


def test_any_node_shows_the_messages(operators: Operators) -> None:
    for index in BOTH:
        found = operators.peek(index, "work", limit=4)
        assert [one["offset"] for one in found["messages"]] == [0, 1, 2, 3]
        assert [one["state"] for one in found["messages"]] == ["in_flight", *["ready"] * 3]
        assert (found["total"], found["next"]) == (MESSAGES, {"partition": 0, "offset": 4})
        rest = operators.peek(index, "work", **found["next"])
        assert [one["offset"] for one in rest["messages"]] == [4, 5]
    first, second = (operators.peek(index, "wide") for index in BOTH)
    assert first == second
    assert len({one["partition"] for one in first["messages"]}) > 1
    assert len(first["messages"]) == MESSAGES


@pytest.mark.parametrize("name", ["work", "wide", "ordered.fifo"])
def test_a_purge_is_done_by_the_node_that_has_the_whole_queue(
    operators: Operators, name: str
) -> None:
    before = operators.show(0, name)
    assert operators.refusal(0, "queues", name, "purge", method="POST") == "NotLeader"
    assert operators.show(0, name) == before
    operators.nodes.move([s for s in operators.shards(name) if _is_first(operators, s)], to=1)
    operators.of[1].send("POST", "queues", name, "purge")
    assert not any(operators.show(0, name)["counts"].values())


def _is_first(operators: Operators, shard: int) -> bool:
    return operators.nodes.placements[0].owns(shard)


def test_without_a_way_to_the_owner_nothing_is_shown(operators: Operators) -> None:
    nodes = operators.nodes
    nodes.call(lambda: setattr(nodes.kernels[0].broker.shard_calls, "link", NoLink()))
    assert operators.refusal(0, "queues", "work") == "NotOwner"
    assert operators.refusal(0, "queues", "work", "messages") == "NotOwner"
    assert operators.show(1, "work")["partitions"] == 1


def test_a_lost_answer_is_unknown_and_a_shown_queue_is_right(operators: Operators) -> None:
    nodes = operators.nodes
    right = operators.show(1, "work")

    def join() -> LossyNetwork:
        network = LossyNetwork(seed=7, chances=Chances(drop=0.2, double=0.3, late=0.1))
        for kernel in nodes.kernels:
            network.join(kernel.placement.node_id, kernel.broker.shard_calls)
        return network

    network = nodes.call(join)
    outcomes: set[object] = set()
    for _ in range(CALLS):
        try:
            outcomes.add(operators.show(0, "work") == right)
        except Refused as refused:
            outcomes.add(refused.kind)
    assert outcomes == {True, "OutcomeUnknown"}
    assert network.dropped > 0
    assert network.doubled > 0
