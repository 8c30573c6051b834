"""Transient topics: made at once in memory, without a row in the metadata store.

They end with the process. Their partition ids are above all that the metadata store gives.
"""

from collections.abc import Callable, Mapping
from itertools import count
from typing import Final
from uuid import uuid4

from gateway.clock import Clock
from gateway.errors import NotLeader
from gateway.model import TopicName
from gateway.topics.configs import check_configs
from gateway.topics.manager import Topic, TopicManager

TRANSIENT_FROM: Final = 1 << 40
"""First partition id of transient topics."""
TRIES_MAX: Final = 10_000  # to find a uuid in a shard of this node


class TransientTopics:
    """Maker of transient topics with the same configs. Loop only."""

    def __init__(
        self,
        topics: TopicManager,
        owns: Callable[[Topic, int], bool],
        clock: Clock,
        configs: Mapping[str, str],
    ) -> None:
        """``owns``: ``Broker.owns``. ``configs``: beside ``storage.class=memory``."""
        self._topics = topics
        self._owns = owns
        self._clock = clock
        self._configs = check_configs({**configs, "storage.class": "memory"})
        self._settings = topics.settings_of(self._configs)
        self._ids = count(TRANSIENT_FROM)

    def create(self, name: TopicName) -> Topic:
        """Create a topic of one partition. Errors: those of ``TopicManager.create``.

        Its partition lies in a shard of this node.
        """
        for _ in range(TRIES_MAX):
            topic = self._new(name)
            if self._owns(topic, 0):
                self._topics.add_transient(topic, next(self._ids))
                return topic
        raise NotLeader("this node has no shard")

    def _new(self, name: TopicName) -> Topic:
        return Topic(
            uuid4(),
            name,
            configs=self._configs,
            settings=self._settings,
            is_internal=False,
            created_unix_ms=self._clock.unix_ms(),
            is_transient=True,
        )
