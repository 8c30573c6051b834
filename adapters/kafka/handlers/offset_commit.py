"""OffsetCommit: API key 8, versions 2 to 10.

v2   retention_time_ms, until v4 (KIP-211)
v3   throttle_time_ms
v6   committed_leader_epoch (KIP-320)
v7   group_instance_id (KIP-345)
v8   flexible encoding (KIP-482)
v9   GROUP_ID_NOT_FOUND for a generation of a group that does not exist; member epochs (KIP-848)
v10  topic ids (KIP-516)

The offsets of one request are stored together, those of a large one in slices. OffsetFetch
returns them at once; the response is sent when they are durable. Later requests are served
meanwhile, so that commits share a sync.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from adapters.kafka.access.authorization import topic_for
from adapters.kafka.codec import TopicRef
from adapters.kafka.codecs.group_codec import (
    CommittedPartition,
    OffsetCommitRequest,
    decode_offset_commit_request,
    encode_offset_commit_response,
)
from adapters.kafka.errors import ErrorCode, Refused, code_of
from adapters.kafka.groups.coordinator import check_group, group_code_of, group_name
from adapters.kafka.node.large_requests import (
    join_slices,
    topic_slices,
    yield_to_loop,
)
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import (
    GatewayError,
    GroupNotFound,
    MetadataTooLarge,
    StaleMemberEpoch,
    TopicNotFound,
    as_value,
)
from gateway.futures import set_result_if_pending
from gateway.groups.consumer.group import ConsumerGroup
from gateway.groups.consumer.model import Partitions
from gateway.groups.cursors import NO_EXPIRY, Commit
from gateway.topics.manager import Topic

API_KEY: Final = 8
VERSIONS: Final = range(2, 11)
GROUP_ID_NOT_FOUND_FROM: Final = 9
MEMBER_EPOCH_FROM: Final = 9

_RETENTION_MS_MAX: Final = 1 << 53  # about 285,000 years: no overflow when added to the time

Reply = Callable[[bytes], None]
Topics = Sequence[tuple[TopicRef, Sequence[CommittedPartition]]]
Answers = list[tuple[TopicRef, list[tuple[int, int]]]]
decode = decode_offset_commit_request


def handle(request: OffsetCommitRequest, session: Session, version: int, reply: Reply) -> None:
    """Store offsets of a group; an error of the group is returned for every partition."""
    try:
        check = _check(request, session, version)
    except GatewayError as error:
        reply(_refused(request, version, as_value(error)))
        return
    answers: Answers = []

    def done(error: GatewayError | None) -> None:
        if error is None:
            reply(encode_offset_commit_response(version, answers))
        else:
            reply(_refused(request, version, error))

    _commit(request, request.topics, session, check, answers, done)


async def handle_large(
    request: OffsetCommitRequest, session: Session, version: int, reply: Reply
) -> None:
    """Store the offsets in slices, one after the other; then respond."""
    large_request_thread = session.node.large_request_thread
    loop = asyncio.get_running_loop()
    failure: GatewayError | None = None
    parts: list[tuple[Answers, asyncio.Future[GatewayError | None]]] = []
    try:
        check = _check(request, session, version)
    except GatewayError as error:
        failure = as_value(error)
    else:
        for topics in topic_slices(request.topics):
            answers: Answers = []
            kept: asyncio.Future[GatewayError | None] = loop.create_future()
            parts.append((answers, kept))
            _commit(
                request,
                topics,
                session,
                check,
                answers,
                partial(set_result_if_pending, kept),
            )
            await yield_to_loop()
        for _, kept in parts:
            failure = await kept or failure
    if failure is not None:
        reply(await large_request_thread.run(_refused, request, version, failure))
        return
    done = [answers for answers, _ in parts]
    reply(await large_request_thread.run(_encode_parts, version, request.topics, done))


def _encode_parts(version: int, topics: Topics, done: Sequence[Answers]) -> bytes:
    return encode_offset_commit_response(version, join_slices(topics, done))


class _Check(NamedTuple):
    """Expiry time of the offsets, and the partitions that may be committed; None for any."""

    expires_unix_ms: int
    partitions: Partitions | None


def _check(request: OffsetCommitRequest, session: Session, version: int) -> _Check:
    """Return what may be committed. Errors: those of a member that may not commit.

    A member of KIP-848 that has not heard of its new epoch yet may commit for the partitions that
    it has had since.
    """
    node = session.node
    check_group(session, Operation.READ, request.group_id)
    name = group_name(session, request.group_id)
    is_member = version < MEMBER_EPOCH_FROM and request.generation >= 0
    if is_member and isinstance(node.groups.find(name), ConsumerGroup):
        msg = "a member of a group of the new protocol commits by version 9 or above"
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, msg)
    partitions = None
    try:
        node.groups.check_commit(
            name,
            request.member_id,
            request.instance_id,
            request.generation,
        )
    except StaleMemberEpoch:
        partitions = node.groups.held_since(name, request.member_id, request.generation)
        if not partitions:
            raise
    if request.retention_ms < 0:
        return _Check(NO_EXPIRY, partitions)
    expires_unix_ms = node.clock.unix_ms() + min(request.retention_ms, _RETENTION_MS_MAX)
    return _Check(expires_unix_ms, partitions)


def _commit(  # noqa: PLR0917 - a part of a request
    request: OffsetCommitRequest,
    topics: Topics,
    session: Session,
    check: _Check,
    answers: Answers,
    done: Callable[[GatewayError | None], None],
) -> None:
    """Store the offsets of some topics together; ``answers`` receives a code for each."""
    commits: list[Commit] = []
    for ref, partitions in topics:
        answers.append((ref, _take(session, ref, partitions, check, commits)))
    if not commits:
        done(None)
        return
    try:
        session.node.cursors.commit(group_name(session, request.group_id), commits, done)
    except GatewayError as error:
        done(as_value(error))


def _take(
    session: Session,
    ref: TopicRef,
    partitions: Sequence[CommittedPartition],
    check: _Check,
    commits: list[Commit],
) -> list[tuple[int, int]]:
    """Add the valid offsets to ``commits``; return (number, error code) of each partition."""
    try:
        topic = topic_for(session, ref, Operation.READ)
    except GatewayError as error:
        code = int(code_of(error))
        return [(partition.number, code) for partition in partitions]
    answers = []
    for partition in partitions:
        code = ErrorCode.NONE
        try:
            commits.append(_to_commit(session, topic, partition, check))
        except GatewayError as error:
            code = code_of(error)
        answers.append((partition.number, int(code)))
    return answers


def _to_commit(
    session: Session, topic: Topic, partition: CommittedPartition, check: _Check
) -> Commit:
    number, offset, leader_epoch, metadata = partition
    if not 0 <= number < len(topic.partition_ids):
        raise TopicNotFound(f"{topic.name.name} has no partition {number}")
    if check.partitions is not None and (topic.uuid, number) not in check.partitions:
        raise StaleMemberEpoch("a member has had the partition for a shorter time")
    metadata = metadata or ""
    if len(metadata.encode()) > session.node.cursors.metadata_bytes_max:
        raise MetadataTooLarge(f"at most {session.node.cursors.metadata_bytes_max} bytes")
    return Commit(topic.uuid, number, offset, leader_epoch, metadata, check.expires_unix_ms)


def _refused(request: OffsetCommitRequest, version: int, error: GatewayError) -> bytes:
    code = int(group_code_of(error))
    if isinstance(error, GroupNotFound) and version < GROUP_ID_NOT_FOUND_FROM:
        code = int(ErrorCode.ILLEGAL_GENERATION)
    return encode_offset_commit_response(
        version,
        [
            (ref, [(partition.number, code) for partition in partitions])
            for ref, partitions in request.topics
        ],
    )
