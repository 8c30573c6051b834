"""Index of queues: those of a namespace are found without a look at all others."""

from typing import Any

from gateway.model import TopicName
from gateway.queues.model import QueueSettings
from gateway.queues.queue_index import QueueIndex


class _Queue:
    def __init__(self, namespace: str, name: str, group: str) -> None:
        self.name = TopicName(namespace, name)
        self.group = group
        self.topic = name
        self.settings = QueueSettings()


def test_queues_of_a_namespace_are_sorted_and_leave_with_their_removal() -> None:
    index = QueueIndex()
    made: list[Any] = [
        _Queue(namespace, name, group)
        for namespace in ("a", "b")
        for name in ("y", "x")
        for group in ("2", "1")
    ]
    for queue in made:
        index.add(queue)
    names = [(one.name.name, one.group) for one in index.of_namespace("a")]
    assert names == [("x", "1"), ("x", "2"), ("y", "1"), ("y", "2")]

    for queue in made[:4]:
        index.remove(queue)
        index.remove(queue)

    assert index.of_namespace("a") == []
    assert set(index.of_namespace("b")) == set(index.everything()) == set(made[4:])
