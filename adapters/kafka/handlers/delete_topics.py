"""DeleteTopics: API key 20, versions 1 to 6.

v4  flexible encoding (KIP-482)
v5  error messages; THROTTLING_QUOTA_EXCEEDED (KIP-599)
v6  topics by name or by id (KIP-516)
"""

from collections import Counter
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from kafka.protocol.admin import DeleteTopicsRequest, DeleteTopicsResponse

from adapters.kafka.access.authorization import may_describe, topic_for
from adapters.kafka.errors import ErrorCode, Refused, code_of
from adapters.kafka.metadata.topic_lookup import resolve_topic
from adapters.kafka.quotas.mutation_quota import MutationQuota
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, Unauthorized, public_text

API_KEY: Final = 20
VERSIONS: Final = range(1, 7)
STRICT_FROM: Final = 5
STATES_FROM: Final = 6

_Result: TypeAlias = DeleteTopicsResponse.DeletableTopicResult


class RequestedTopic(NamedTuple):
    """One topic to delete: by name, or by id."""

    name: str | None
    topic_id: UUID | None


async def handle(
    request: DeleteTopicsRequest, session: Session, version: int
) -> DeleteTopicsResponse:
    """Delete topics one after the other; each has a result of its own."""
    if version >= STATES_FROM:
        asked = [RequestedTopic(topic.name, topic.topic_id) for topic in request.topics]
    else:
        asked = [RequestedTopic(name, None) for name in request.topic_names]
    counts = Counter(asked)
    quota = MutationQuota(session, is_strict=version >= STRICT_FROM)
    results = [
        await _answer(one, session, quota, repeated=count > 1) for one, count in counts.items()
    ]
    return DeleteTopicsResponse(version=version, responses=results)


async def _answer(
    asked: RequestedTopic, session: Session, quota: MutationQuota, *, repeated: bool
) -> _Result:
    result = _Result(
        name=asked.name, topic_id=asked.topic_id, error_code=ErrorCode.NONE, error_message=None
    )
    try:
        with session.changes("topic.delete", asked.name or str(asked.topic_id)):
            await _delete(asked, session, quota, result, repeated=repeated)
    except GatewayError as error:
        result.error_code = code_of(error)
        result.error_message = public_text(error)
    return result


async def _delete(
    asked: RequestedTopic,
    session: Session,
    quota: MutationQuota,
    result: _Result,
    *,
    repeated: bool,
) -> None:
    if asked.name is not None and asked.topic_id is not None:
        msg = "You may not specify both topic name and topic id."
        raise Refused(ErrorCode.INVALID_REQUEST, msg)
    if asked.name is None and asked.topic_id is None:
        raise Refused(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if repeated:
        raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
    if asked.topic_id is not None:
        named = resolve_topic(session, asked.topic_id)
        if not may_describe(session, named.name.name):
            raise Unauthorized("Authorization failed.")  # without the topic's name
        result.name = named.name.name
    topic = topic_for(session, result.name, Operation.DELETE)
    result.topic_id = topic.uuid
    with quota.taking(len(topic.partition_ids)):
        await session.node.topics.delete(topic.name)
