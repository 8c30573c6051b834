"""Transient queues: made at once in memory, with a topic of their own, and nothing stored.

No row in the metadata store, no entry in the journal, no file. They end with the process.
"""

from collections.abc import Mapping
from typing import Final

from gateway.broker import Broker
from gateway.clock import Clock
from gateway.model import DEFAULT_GROUP, TopicName
from gateway.queues.create_queue import QUEUE_TOPIC_CONFIGS
from gateway.queues.manager import Queue, QueueManager
from gateway.queues.model import QueueRow, QueueSettings
from gateway.topics.manager import TopicManager
from gateway.topics.transient import TransientTopics

CONFIGS: Final[dict[str, str]] = {**QUEUE_TOPIC_CONFIGS, "queue.keep.ms": "0"}


class TransientQueues:
    """Maker of transient queues. Loop only."""

    def __init__(
        self, queues: QueueManager, topics: TopicManager, broker: Broker, clock: Clock
    ) -> None:
        self._queues = queues
        self._clock = clock
        self._topics = TransientTopics(topics, broker.owns, clock, CONFIGS)

    def create(
        self, name: TopicName, settings: QueueSettings, *, attributes: Mapping[str, str]
    ) -> Queue:
        """Make a queue and its topic, which is deleted with it.

        Errors: those of ``TopicManager.create``, ``Overloaded`` above `queue.queues_max`.
        """
        self._queues.check_room()
        topic = self._topics.create(name)
        now_unix_ms = self._clock.unix_ms()
        row = QueueRow(
            topic.uuid,
            DEFAULT_GROUP,
            settings,
            dict(attributes),
            {},
            owns_topic=True,
            created_unix_ms=now_unix_ms,
            changed_unix_ms=now_unix_ms,
        )
        return self._queues.add(topic, row)

    def delete(self, queue: Queue) -> bool:
        """Delete a transient queue and its topic at once; return False for any other."""
        return not queue.is_gone and self._queues.delete_transient(queue)
