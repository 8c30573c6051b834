"""Authorization of a session's operations on topics and on the cluster.

The operation that each API needs, and on which resource, is that of the Apache Kafka
documentation, section 7.4, "Operations and resources on protocols". The numbers are those of
``AclOperation`` and ``ResourceType`` in the Java client; ACL APIs and bit sets (KIP-430) use them.
"""

from collections.abc import Mapping
from typing import Final

from adapters.kafka.codec import TopicRef
from adapters.kafka.metadata.topic_lookup import resolve_topic
from adapters.kafka.session import Session
from gateway.auth.ports import CLUSTER, Operation, ResourceType
from gateway.errors import PolicyViolation, Unauthorized
from gateway.topics.manager import Topic

OPERATION_CODES: Final[Mapping[Operation, int]] = {
    Operation.ALL: 2,
    Operation.READ: 3,
    Operation.WRITE: 4,
    Operation.CREATE: 5,
    Operation.DELETE: 6,
    Operation.ALTER: 7,
    Operation.DESCRIBE: 8,
    Operation.CLUSTER_ACTION: 9,
    Operation.DESCRIBE_CONFIGS: 10,
    Operation.ALTER_CONFIGS: 11,
    Operation.IDEMPOTENT_WRITE: 12,
}

RESOURCE_TYPE_CODES: Final[Mapping[ResourceType, int]] = {
    ResourceType.TOPIC: 2,
    ResourceType.GROUP: 3,
    ResourceType.CLUSTER: 4,
    ResourceType.TRANSACTIONAL_ID: 5,
}

_OPERATIONS_ON: Final[Mapping[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}


def authorized_operations(
    session: Session, resource_type: ResourceType, name: str
) -> frozenset[int]:
    """Return the numbers of the operations that the session may do on a resource (KIP-430)."""
    return frozenset(
        OPERATION_CODES[operation]
        for operation in _OPERATIONS_ON[resource_type]
        if session.allows(operation, resource_type, name)
    )


def to_bits(operations: frozenset[int]) -> int:
    """Return a set of operations as an int32 with one bit for each.

    >>> to_bits(frozenset({3, 8}))
    264
    """
    return sum(1 << operation for operation in operations)


def may_describe(session: Session, topic_name: str) -> bool:
    """Return whether the session may describe the topic."""
    return session.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic_name)


def may_create(session: Session, topic_name: str) -> bool:
    """Return whether the session may create this topic: by a rule for it, or for the cluster."""
    return session.allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER) or session.allows(
        Operation.CREATE, ResourceType.TOPIC, topic_name
    )


def check_cluster(session: Session, operation: Operation) -> None:
    """Raise ``Unauthorized`` unless the session may do ``operation`` on the cluster."""
    if not session.allows(operation, ResourceType.CLUSTER, CLUSTER):
        msg = f"{operation.value} on the cluster is not allowed"
        raise Unauthorized(msg, resource="cluster")


def topic_for(session: Session, ref: TopicRef, operation: Operation) -> Topic:
    """Return the topic if the session may do ``operation`` on it.

    Errors: ``Unauthorized``, also for a topic that does not exist, so that names cannot be
    probed; ``TopicNotFound``; ``UnknownTopicId``.
    """
    if isinstance(ref, str):
        _check_topic(session, ref, operation)
        return resolve_topic(session, ref)
    topic = resolve_topic(session, ref)
    if not session.allows(operation, ResourceType.TOPIC, topic.name.name):
        msg = f"{operation.value} on topic {ref} is not allowed"  # without the topic's name
        raise Unauthorized(msg)
    return topic


def ordinary_topic_for(session: Session, ref: TopicRef, operation: Operation) -> Topic:
    """Return the topic as ``topic_for`` does, but never an internal one.

    Internal topics hold the gateway's state, which clients must not change. Errors: those of
    ``topic_for``, and ``PolicyViolation``.
    """
    topic = topic_for(session, ref, operation)
    if topic.is_internal:
        msg = f"{topic.name.name} is an internal topic"
        raise PolicyViolation(msg)
    return topic


def is_visible(session: Session, topic: Topic) -> bool:
    """Return whether a list of all topics includes this one for the session."""
    return not topic.is_internal and may_describe(session, topic.name.name)


def _check_topic(session: Session, name: str, operation: Operation) -> None:
    if not session.allows(operation, ResourceType.TOPIC, name):
        msg = f"{operation.value} on topic {name[:80]} is not allowed"
        raise Unauthorized(msg)
