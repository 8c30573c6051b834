"""Topics of a namespace, as the members of its groups subscribe to them."""

from collections.abc import Callable
from uuid import UUID

from gateway.groups.consumer.patterns import compile_pattern
from gateway.model import TopicName
from gateway.topics.manager import TopicManager


class NamespaceTopics:
    """Implements ``TopicSource`` for one namespace; internal topics are left out."""

    def __init__(self, topics: TopicManager, namespace: str) -> None:
        self._topics = topics
        self._namespace = namespace

    @property
    def revision(self) -> int:
        """Number that grows with each change of any topic."""
        return self._topics.revision

    def resolve(self, name: str) -> tuple[UUID, int] | None:
        """Return the uuid and the partition count of a topic; None if there is none."""
        topic = self._topics.find(TopicName(self._namespace, name))
        if topic is None or topic.is_internal:
            return None
        return topic.uuid, len(topic.partition_ids)

    def match(self, pattern: str, can_see: Callable[[str], bool]) -> frozenset[str]:
        """Return the names that a pattern matches. Error: ``InvalidPattern``."""
        matches = compile_pattern(pattern)
        names = [topic.name.name for topic in self._topics.topics(self._namespace)]
        return frozenset(name for name in names if matches(name) and can_see(name))
