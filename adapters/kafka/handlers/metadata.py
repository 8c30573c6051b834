"""Metadata: API key 3, versions 0 to 13.

Changes of each version: ``adapters.kafka.codecs.metadata_codec``.

A missing topic that is requested by name is created if the node's `auto_create`, the request and
the session's authorization allow it; it is usable at once. A list of all topics leaves out
internal topics and those that the session may not describe.
"""

from collections.abc import Awaitable, Sequence
from typing import Final

from adapters.kafka.access.authorization import (
    authorized_operations,
    is_visible,
    may_create,
    may_describe,
    to_bits,
)
from adapters.kafka.codecs import metadata_codec
from adapters.kafka.codecs.metadata_codec import (
    NOT_ASKED,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.metadata.broker_addresses import brokers
from adapters.kafka.node.large_requests import SLICE_ELEMENTS, slices, yield_to_loop
from adapters.kafka.node.metadata_cache import topic_response
from adapters.kafka.session import Session
from gateway.auth.ports import CLUSTER, Operation, ResourceType
from gateway.errors import GatewayError, TopicNotFound, as_value
from gateway.model import TopicName, check_topic_name
from gateway.topics.manager import Topic

API_KEY: Final = metadata_codec.API_KEY
VERSIONS: Final = metadata_codec.VERSIONS
IDS_ASKED_FROM: Final = 12

decode = metadata_codec.decode_request


def handle(
    request: MetadataRequest, session: Session, version: int
) -> bytes | Awaitable[bytes]:
    """Return the brokers and the requested topics; an awaitable if topics have to be created."""
    if request.topics is None:
        return _assemble(request, session, version, _all_topics(request, session, version))
    missing = _creatable(request.topics, request, session)
    if missing:
        return _create_and_answer(request.topics, missing, request, session, version)
    return _answer(request.topics, {}, request, session, version)


async def handle_large(request: MetadataRequest, session: Session, version: int) -> bytes:
    """Do as ``handle``, in slices; topics are created slice by slice."""
    encoded: list[bytes] = []
    for asked in slices(request.topics or ()):
        failures = await _create(_creatable(asked, request, session), session)
        room = SLICE_ELEMENTS
        for one in asked:
            if room <= 0:
                await yield_to_loop()
                room = SLICE_ELEMENTS
            topic = _find(one, failures, session, version)
            encoded.append(_encode_topic(topic, request, session, version))
            room -= len(topic.partition_ids) if isinstance(topic, Topic) else 1
        await yield_to_loop()
    return _assemble(request, session, version, metadata_codec.encode_topics(version, encoded))


def _assemble(request: MetadataRequest, session: Session, version: int, topics: bytes) -> bytes:
    placement = session.node.placement
    head = metadata_codec.encode_head(
        version, brokers(session), placement.cluster_id, placement.node_id
    )
    operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        operations = 0
        if session.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER):
            operations = to_bits(authorized_operations(session, ResourceType.CLUSTER, CLUSTER))
    return head + topics + metadata_codec.encode_tail(version, operations)


def _all_topics(request: MetadataRequest, session: Session, version: int) -> bytes:
    node = session.node

    def visible() -> list[Topic]:
        topics = node.topics.topics(session.namespace)
        return [topic for topic in topics if is_visible(session, topic)]

    if request.include_topic_authorized_operations:
        return metadata_codec.encode_topics(
            version, [_encode_known(topic, request, session, version) for topic in visible()]
        )
    revisions = (node.topics.revision, node.authorizer.revision)
    return node.metadata_cache.topic_list(
        version, session.namespace, session.principal, revisions, visible
    )


def _creatable(
    asked: Sequence[MetadataRequestTopic], request: MetadataRequest, session: Session
) -> list[str]:
    """Return the names of topics to create before the response."""
    if not (
        request.allow_auto_topic_creation and session.node.settings.topic_defaults.auto_create
    ):
        return []
    return [
        name
        for topic_id, name in asked
        if name is not None
        and topic_id is None
        and session.node.topics.find(TopicName(session.namespace, name)) is None
        and may_describe(session, name)
        and may_create(session, name)
    ]


async def _create_and_answer(
    asked: Sequence[MetadataRequestTopic],
    missing: Sequence[str],
    request: MetadataRequest,
    session: Session,
    version: int,
) -> bytes:
    failures = await _create(missing, session)
    return _answer(asked, failures, request, session, version)


async def _create(missing: Sequence[str], session: Session) -> dict[str, GatewayError]:
    """Create topics; return the errors of those that could not be created, by name."""
    failures: dict[str, GatewayError] = {}
    for name in missing:
        try:
            with session.changes("topic.create", name):
                await session.node.topics.auto_create(TopicName(session.namespace, name))
        except GatewayError as error:
            failures[name] = as_value(error)
    return failures


def _answer(
    asked: Sequence[MetadataRequestTopic],
    failures: dict[str, GatewayError],
    request: MetadataRequest,
    session: Session,
    version: int,
) -> bytes:
    encoded = [
        _encode_topic(_find(one, failures, session, version), request, session, version)
        for one in asked
    ]
    return _assemble(request, session, version, metadata_codec.encode_topics(version, encoded))


def _encode_topic(
    topic: Topic | MetadataResponseTopic,
    request: MetadataRequest,
    session: Session,
    version: int,
) -> bytes:
    if isinstance(topic, Topic):
        return _encode_known(topic, request, session, version)
    return metadata_codec.encode_topic(version, topic)


def _encode_known(
    topic: Topic, request: MetadataRequest, session: Session, version: int
) -> bytes:
    answered = topic_response(topic, session.node.placement)
    if request.include_topic_authorized_operations:
        operations = authorized_operations(session, ResourceType.TOPIC, topic.name.name)
        answered = answered._replace(authorized_operations=to_bits(operations))
    return metadata_codec.encode_topic(version, answered)


def _find(
    asked: MetadataRequestTopic,
    failures: dict[str, GatewayError],
    session: Session,
    version: int,
) -> Topic | MetadataResponseTopic:
    """Return the topic, or the response for one that is missing or not visible."""
    if version < IDS_ASKED_FROM and (asked.topic_id is not None or asked.name is None):
        return MetadataResponseTopic(ErrorCode.INVALID_REQUEST, asked.name, asked.topic_id)
    if asked.topic_id is not None:
        topic = session.node.topics.by_uuid(asked.topic_id)
        if topic is None or topic.name.namespace != session.namespace:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, asked.topic_id)
        if not may_describe(session, topic.name.name):
            return MetadataResponseTopic(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, asked.topic_id
            )
        return topic
    return _find_by_name(asked.name or "", failures, session)


def _find_by_name(
    name: str, failures: dict[str, GatewayError], session: Session
) -> Topic | MetadataResponseTopic:
    if not may_describe(session, name):
        return MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
    topic = session.node.topics.find(TopicName(session.namespace, name))
    if topic is not None:
        return topic
    try:
        check_topic_name(name)
    except GatewayError as error:
        return MetadataResponseTopic(code_of(error), name)
    return MetadataResponseTopic(code_of(failures.get(name, TopicNotFound())), name)
