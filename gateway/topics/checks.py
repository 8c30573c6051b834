"""Checks of new topics and of changes: names, room, internal ones, those in memory."""

from gateway.contributions import Contributions
from gateway.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidTopicName,
    PolicyViolation,
    TopicExists,
)
from gateway.model import TopicName, check_topic_name
from gateway.topics.configs import TopicSettings
from gateway.topics.index import Topic, TopicIndex


def check_new_name(
    index: TopicIndex, contributions: Contributions, name: TopicName, *, internal: bool
) -> None:
    """Check the name of a new topic. Errors: ``InvalidTopicName``, ``TopicExists``."""
    check_topic_name(name.name)
    if contributions.is_internal_topic(name.name) is not internal:
        if internal:
            msg = f"internal topic {name.name} is in no adapter's CONTRIBUTION"
            raise InvalidTopicName(msg)
        msg = f"topic name {name.name} is reserved for internal use"
        raise InvalidTopicName(msg)
    if index.find(name) is not None:
        msg = f"topic {name.name} exists already"
        raise TopicExists(msg)
    other = index.colliding(name)
    if other is not None:
        # Kafka refuses it because its metrics' names turn '.' into '_'.
        msg = f"topic {name.name} collides with existing topic {other.name}"
        raise InvalidTopicName(msg)


def check_room(index: TopicIndex, partitions_max: int, added: int) -> None:
    """Check that there is room for more partitions. Error: ``InvalidPartitions``."""
    present = index.partition_count - index.internal_partition_count
    if present + added > partitions_max:
        msg = (
            f"{added} partitions more than the {present} there are "
            f"would be above topic_defaults.partitions_max, {partitions_max}"
        )
        raise InvalidPartitions(msg)


def check_default(settings: TopicSettings) -> None:
    """Refuse to keep all topics in memory by default. Error: ``InvalidConfig``."""
    if settings.in_memory:
        raise InvalidConfig("storage.class is for single topics, not for all by default")


def check_memory(settings: TopicSettings, topic: Topic | None = None) -> None:
    """Refuse what a topic in memory does not do, and to move a topic. Error: ``InvalidConfig``."""
    if settings.in_memory and settings.compacts:
        raise InvalidConfig("cleanup.policy: topics in memory cannot be compacted")
    if topic is not None and settings.in_memory is not topic.settings.in_memory:
        raise InvalidConfig(f"storage.class of topic {topic.name.name} cannot be changed")


def check_changeable(topic: Topic) -> None:
    """Refuse to change internal and transient topics. Error: ``PolicyViolation``."""
    check_not_internal(topic)
    if topic.is_transient:
        msg = f"topic {topic.name.name} is transient, and cannot be changed"
        raise PolicyViolation(msg)


def check_not_internal(topic: Topic) -> None:
    """Refuse to change internal topics. Error: ``PolicyViolation``."""
    if topic.is_internal:
        msg = f"topic {topic.name.name} is internal"
        raise PolicyViolation(msg)
