"""CreateTopics: API key 19, versions 2 to 7.

v4  a partition count or replication factor of -1 is the broker's default (KIP-464)
v5  flexible encoding (KIP-482); partitions, replicas and configs in the response (KIP-525)
v6  THROTTLING_QUOTA_EXCEEDED (KIP-599)
v7  topic ids in the response (KIP-516)

The timeout is ignored: the response is sent when the topics are durable or refused.
"""

from typing import Final, TypeAlias

from kafka.protocol.admin import CreateTopicsRequest, CreateTopicsResponse

from adapters.kafka.access.authorization import may_create
from adapters.kafka.errors import ErrorCode, Refused, code_of
from adapters.kafka.metadata.named_topics import by_name
from adapters.kafka.metadata.replica_assignments import (
    DEFAULT,
    REPLICAS,
    check_assignment,
    check_replication_factor,
)
from adapters.kafka.quotas.mutation_quota import MutationQuota
from adapters.kafka.session import Session
from gateway.auth.ports import Operation, ResourceType
from gateway.errors import (
    GatewayError,
    InvalidConfig,
    InvalidPartitions,
    Unauthorized,
    public_text,
)
from gateway.model import TopicName
from gateway.placement import Placement
from gateway.topics.manager import Topic

API_KEY: Final = 19
VERSIONS: Final = range(2, 8)
STRICT_FROM: Final = 6

_Asked: TypeAlias = CreateTopicsRequest.CreatableTopic
_Result: TypeAlias = CreateTopicsResponse.CreatableTopicResult


async def handle(
    request: CreateTopicsRequest, session: Session, version: int
) -> CreateTopicsResponse:
    """Create topics one after the other; each has a result of its own."""
    quota = MutationQuota(session, is_strict=version >= STRICT_FROM)
    results = [
        await _answer(asked, session, quota, repeated=repeated, dry=request.validate_only)
        for asked, repeated in by_name(request.topics)
    ]
    return CreateTopicsResponse(version=version, topics=results)


async def _answer(
    asked: _Asked, session: Session, quota: MutationQuota, *, repeated: bool, dry: bool
) -> _Result:
    try:
        if repeated:
            raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        with session.changes("topic.create", asked.name, dry=dry):
            topic = await _create(asked, session, quota, dry=dry)
    except GatewayError as error:
        return _Result(
            name=asked.name,
            error_code=code_of(error),
            error_message=public_text(error),
        )
    return _success(topic, session)


async def _create(asked: _Asked, session: Session, quota: MutationQuota, *, dry: bool) -> Topic:
    if not may_create(session, asked.name):
        raise Unauthorized("Authorization failed.")
    node = session.node
    count = _partition_count(asked, node.placement)
    with quota.taking(count or node.settings.topic_defaults.partitions, dry=dry):
        return await node.topics.create(
            TopicName(session.namespace, asked.name),
            partitions=count,
            configs=_configs(asked),
            validate_only=dry,
        )


def _partition_count(asked: _Asked, placement: Placement) -> int | None:
    """Return the requested number of partitions, None for the default."""
    if asked.assignments:
        return _assigned_count(asked, placement)
    check_replication_factor(asked.replication_factor)
    if asked.num_partitions == DEFAULT:
        return None
    if asked.num_partitions < 1:
        raise InvalidPartitions(
            "Number of partitions was set to an invalid non-positive value."
        )
    count: int = asked.num_partitions
    return count


def _assigned_count(asked: _Asked, placement: Placement) -> int:
    for name, value in (
        ("replication factor", asked.replication_factor),
        ("numPartitions", asked.num_partitions),
    ):
        if value != DEFAULT:
            msg = f"A manual partition assignment was specified, but {name} was not set to -1."
            raise Refused(ErrorCode.INVALID_REQUEST, msg)
    numbers = sorted(assignment.partition_index for assignment in asked.assignments)
    if numbers != list(range(len(numbers))):
        msg = "partitions should be a consecutive 0-based integer sequence"
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, msg)
    for assignment in asked.assignments:
        check_assignment(assignment.partition_index, assignment.broker_ids, placement)
    return len(numbers)


def _configs(asked: _Asked) -> dict[str, str]:
    for config in asked.configs:
        if config.value is None:
            msg = f"Null value not supported for topic config {config.name[:80]}"
            raise InvalidConfig(msg)
    return {config.name: config.value for config in asked.configs}


def _success(topic: Topic, session: Session) -> _Result:
    """Return the result for a new topic, with its configs if the session may describe them."""
    name = topic.name.name
    result = _Result(name=name, topic_id=topic.uuid, error_code=ErrorCode.NONE)
    result.error_message = None
    result.configs = []
    if not session.allows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return result
    result.num_partitions = len(topic.partition_ids)
    result.replication_factor = REPLICAS
    result.configs = [
        _Result.CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.is_read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in session.node.topics.describe_configs(topic)
    ]
    return result
