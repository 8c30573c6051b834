"""CreatePartitions: API key 37, versions 0 to 3.

v2  flexible encoding (KIP-482)
v3  THROTTLING_QUOTA_EXCEEDED (KIP-599)
"""

from typing import Final, TypeAlias

from kafka.protocol.admin import CreatePartitionsRequest, CreatePartitionsResponse

from adapters.kafka.access.authorization import ordinary_topic_for
from adapters.kafka.errors import ErrorCode, Refused, code_of
from adapters.kafka.metadata.named_topics import by_name
from adapters.kafka.metadata.replica_assignments import check_assignment
from adapters.kafka.quotas.mutation_quota import MutationQuota
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, InvalidPartitions, public_text
from gateway.topics.manager import Topic

API_KEY: Final = 37
VERSIONS: Final = range(4)
STRICT_FROM: Final = 3

_Asked: TypeAlias = CreatePartitionsRequest.CreatePartitionsTopic
_Result: TypeAlias = CreatePartitionsResponse.CreatePartitionsTopicResult


async def handle(
    request: CreatePartitionsRequest, session: Session, version: int
) -> CreatePartitionsResponse:
    """Add partitions to topics; each topic has a result of its own."""
    quota = MutationQuota(session, is_strict=version >= STRICT_FROM)
    results = [
        await _answer(asked, session, quota, repeated=repeated, dry=request.validate_only)
        for asked, repeated in by_name(request.topics)
    ]
    return CreatePartitionsResponse(version=version, results=results)


async def _answer(
    asked: _Asked, session: Session, quota: MutationQuota, *, repeated: bool, dry: bool
) -> _Result:
    code, message = ErrorCode.NONE, None
    try:
        if repeated:
            raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        with session.changes("topic.add_partitions", asked.name, dry=dry):
            topic = ordinary_topic_for(session, asked.name, Operation.ALTER)
            _check_count(asked.count, topic)
            if asked.assignments is not None:
                _check_assignments(asked, topic, session)
            topics = session.node.topics
            with quota.taking(asked.count - len(topic.partition_ids), dry=dry):
                await topics.add_partitions(topic.name, asked.count, validate_only=dry)
    except GatewayError as error:
        code, message = code_of(error), public_text(error)
    return _Result(name=asked.name, error_code=code, error_message=message)


def _check_count(count: int, topic: Topic) -> None:
    present = len(topic.partition_ids)
    if count == present:
        msg = f"Topic already has {present} partition(s)."
        raise InvalidPartitions(msg)
    if count < present:
        msg = (
            f"The topic {topic.name.name} currently has {present} partition(s); "
            f"{count} would not be an increase."
        )
        raise InvalidPartitions(msg)


def _check_assignments(asked: _Asked, topic: Topic, session: Session) -> None:
    present = len(topic.partition_ids)
    additional = asked.count - present
    if len(asked.assignments) != additional:
        msg = (
            f"Attempted to add {additional} additional partition(s), but only "
            f"{len(asked.assignments)} assignment(s) were specified."
        )
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, msg)
    for number, assignment in enumerate(asked.assignments, start=present):
        check_assignment(number, assignment.broker_ids, session.node.placement)
