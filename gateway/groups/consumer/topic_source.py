"""Topics of a namespace, as the members of its groups subscribe to them."""

from uuid import UUID

from gateway.groups.consumer.model import NO_NAMES
from gateway.model import TopicName
from gateway.topics.manager import TopicManager


class TopicNames:
    """Names of the topics of each namespace, without internal ones, until topics change."""

    def __init__(self, topics: TopicManager) -> None:
        self._topics = topics
        self._revision = -1
        self._names: dict[str, frozenset[str]] = {}

    def of(self, namespace: str) -> frozenset[str]:
        """Return the names of a namespace; the same object until topics change."""
        if self._revision != self._topics.revision:
            self._revision = self._topics.revision
            # A namespace keeps its object when the change was of another one, or of a config.
            self._names = {one: self._looked_up(one) for one in self._names}
        names = self._names.get(namespace)
        if names is None:
            names = self._names[namespace] = self._looked_up(namespace)
        return names

    def _looked_up(self, namespace: str) -> frozenset[str]:
        names = frozenset(topic.name.name for topic in self._topics.topics(namespace))
        before = self._names.get(namespace, NO_NAMES)
        return before if names == before else names


class NamespaceTopics:
    """Implements ``TopicSource`` for one namespace; internal topics are left out."""

    def __init__(self, topics: TopicManager, names: TopicNames, namespace: str) -> None:
        self._topics = topics
        self._names = names
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

    def names(self) -> frozenset[str]:
        """Return the names of all topics."""
        return self._names.of(self._namespace)
