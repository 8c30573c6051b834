"""Queues of a node in memory: by name and group, topic, namespace, and dead-letter topic."""

from collections.abc import Callable
from typing import Final

from gateway.model import DEFAULT_GROUP, TopicName
from gateway.queues.model import QueueSettings
from gateway.queues.queue import Queue
from gateway.topics.manager import Topic

_SPARE_NAMES: Final = 64  # of dead-letter topics that no queue has any more


class QueueIndex:
    """See the module. Loop only."""

    def __init__(self) -> None:
        self._queues: dict[tuple[TopicName, str], Queue] = {}
        self._by_topic: dict[Topic, list[Queue]] = {}
        self._by_namespace: dict[str, dict[Queue, None]] = {}
        self._dead_letter_names: set[str] = set()  # at least those of all queues
        self.on_added: Callable[[Queue], None] = lambda _: None

    def __len__(self) -> int:
        return len(self._queues)

    def find(self, name: TopicName, group: str) -> Queue | None:
        """Return the queue of a topic and a group."""
        return self._queues.get((name, group))

    def everything(self) -> list[Queue]:
        """Return all queues, in no order."""
        return list(self._queues.values())

    def of(self, topic: Topic) -> list[Queue]:
        """Return the queues of a topic."""
        return list(self._by_topic.get(topic, ()))

    def of_namespace(self, namespace: str, *, is_sorted: bool = True) -> list[Queue]:
        """Return the queues of a namespace, sorted by name and group, or in no order."""
        found = self._by_namespace.get(namespace, ())
        if not is_sorted:
            return list(found)
        return sorted(found, key=lambda queue: (queue.name.name, queue.group))

    def add(self, queue: Queue) -> None:
        """Add a queue."""
        self._queues[queue.name, queue.group] = queue
        self._by_namespace.setdefault(queue.name.namespace, {})[queue] = None
        self._by_topic.setdefault(queue.topic, []).append(queue)
        self.note(queue.settings)
        self.on_added(queue)

    def remove(self, queue: Queue) -> None:
        """Remove a queue, unless it is gone."""
        if self._queues.get((queue.name, queue.group)) is not queue:
            return
        del self._queues[queue.name, queue.group]
        same_namespace = self._by_namespace[queue.name.namespace]
        del same_namespace[queue]
        if not same_namespace:
            del self._by_namespace[queue.name.namespace]
        rest = self._by_topic[queue.topic]
        rest.remove(queue)
        if not rest:
            del self._by_topic[queue.topic]

    def note(self, settings: QueueSettings) -> None:
        """Take note of the settings that a queue has from now on."""
        names = self._dead_letter_names
        if settings.dead_letter_topic:
            names.add(settings.dead_letter_topic)
        if len(names) > 2 * len(self._queues) + _SPARE_NAMES:
            self._dead_letter_names = {
                queue.settings.dead_letter_topic for queue in self._queues.values()
            }

    def is_timed(self, name: TopicName) -> bool:
        """Return whether the queue of a topic ends messages by the time of their arrival."""
        queue = self.find(name, DEFAULT_GROUP)
        return queue is not None and queue.settings.message_ttl_ms >= 0

    def sources_of(self, name: TopicName) -> list[Queue]:
        """Return the queues whose dead letters go to a topic, sorted by name and group."""
        if name.name not in self._dead_letter_names:
            return []
        found = [
            queue
            for queue in self._queues.values()
            if queue.settings.dead_letter_topic == name.name
            and queue.name.namespace == name.namespace
        ]
        return sorted(found, key=lambda queue: (queue.name.name, queue.group))
