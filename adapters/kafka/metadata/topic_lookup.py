"""Lookup of topics by the name or id in a request."""

from uuid import UUID

from adapters.kafka.codec import TopicRef
from adapters.kafka.session import Session
from gateway.errors import UnknownTopicId
from gateway.model import TopicName
from gateway.topics.manager import Topic


def resolve_topic(session: Session, ref: TopicRef) -> Topic:
    """Return the topic. Errors: ``TopicNotFound``, ``UnknownTopicId``."""
    if isinstance(ref, UUID):
        topic = session.node.topics.by_uuid(ref)
        if topic is None or topic.name.namespace != session.namespace:
            msg = f"no topic has the id {ref}"
            raise UnknownTopicId(msg)
        return topic
    return session.node.topics.get(TopicName(session.namespace, ref))
