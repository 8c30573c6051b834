"""OffsetFetch: API key 9, versions 1 to 10.

v2   topics may be null: all of them; an error for the whole group
v3   throttle_time_ms
v5   committed_leader_epoch (KIP-320)
v6   flexible encoding (KIP-482)
v7   require_stable (KIP-447); without transactions every position is stable
v8   several groups at once (KIP-709)
v9   member_id and member_epoch (KIP-848); classic groups do not look at them
v10  topic ids (KIP-516)
"""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from kafka.protocol.consumer import OffsetFetchRequest, OffsetFetchResponse

from adapters.kafka.access import topic_for
from adapters.kafka.codec import TopicRef
from adapters.kafka.coordinator import check_group, group_code_of, group_name
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.session import Session
from gateway.auth.ports import Operation, ResourceType
from gateway.errors import GatewayError, TopicNotFound, Unauthorized, UnknownTopicId
from gateway.groups.cursors import UNKNOWN_EPOCH, Cursor
from gateway.topics.manager import Topic

API_KEY: Final = 9
VERSIONS: Final = range(1, 11)

GROUP_ERROR_FROM: Final = 2
GROUPS_FROM: Final = 8
TOPIC_IDS_FROM: Final = 10
NO_OFFSET: Final = -1

_Position = tuple[int, int, int, str, ErrorCode]  # index, offset, epoch, metadata, code
_Topics = list[tuple[TopicRef, list[_Position]]]


def handle(request: OffsetFetchRequest, session: Session, version: int) -> OffsetFetchResponse:
    """Return the committed positions of groups; -1 where there is none."""
    if version >= GROUPS_FROM:
        return OffsetFetchResponse(
            version=version,
            groups=[_answer_group(session, group, version) for group in request.groups],
        )
    topics = _asked(request.topics, version)
    code, found = _fetch(session, request.group_id, topics, by_id=False)
    if code is not ErrorCode.NONE and version < GROUP_ERROR_FROM:
        found = _nothing(topics or [], code)
    return OffsetFetchResponse(
        version=version,
        error_code=code,
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=ref,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponseTopic.OffsetFetchResponsePartition(
                        **_fields(position)
                    )
                    for position in positions
                ],
            )
            for ref, positions in found
        ],
    )


def _answer_group(session: Session, group: Any, version: int) -> Any:  # noqa: ANN401 - generated
    code, found = _fetch(
        session,
        group.group_id,
        _asked(group.topics, version),
        by_id=version >= TOPIC_IDS_FROM,
    )
    kind = OffsetFetchResponse.OffsetFetchResponseGroup
    return kind(
        group_id=group.group_id,
        error_code=code,
        topics=[
            kind.OffsetFetchResponseTopics(
                **{"topic_id" if isinstance(ref, UUID) else "name": ref},
                partitions=[
                    kind.OffsetFetchResponseTopics.OffsetFetchResponsePartitions(
                        **_fields(position)
                    )
                    for position in positions
                ],
            )
            for ref, positions in found
        ],
    )


def _fields(position: _Position) -> dict[str, Any]:
    index, offset, leader_epoch, metadata, code = position
    return {
        "partition_index": index,
        "committed_offset": offset,
        "committed_leader_epoch": leader_epoch,
        "metadata": metadata,
        "error_code": code,
    }


def _asked(topics: Any, version: int) -> list[tuple[TopicRef, list[int]]] | None:  # noqa: ANN401
    if topics is None:
        return None
    return [
        (
            topic.topic_id if version >= TOPIC_IDS_FROM else topic.name,
            list(topic.partition_indexes),
        )
        for topic in topics
    ]


def _fetch(
    session: Session,
    group_id: str,
    asked: list[tuple[TopicRef, list[int]]] | None,
    *,
    by_id: bool,
) -> tuple[ErrorCode, _Topics]:
    """Return the group's error, and its positions: those asked for, or (None) all."""
    try:
        check_group(session, Operation.DESCRIBE, group_id)
        session.node.cursors.check_loaded()
    except GatewayError as error:
        return group_code_of(error), []
    if asked is None:
        return ErrorCode.NONE, _everything(session, group_id, by_id=by_id)
    return ErrorCode.NONE, [
        (ref, _positions(session, group_id, ref, indexes)) for ref, indexes in asked
    ]


def _everything(session: Session, group_id: str, *, by_id: bool) -> _Topics:
    node = session.node
    found: dict[TopicRef, list[_Position]] = {}
    for cursor in node.cursors.fetch_all(group_name(session, group_id)):
        topic = node.topics.by_uuid(cursor.topic_uuid)
        if topic is None:
            continue  # It is being deleted.
        name = topic.name.name
        if session.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
            ref = topic.uuid if by_id else name
            found.setdefault(ref, []).append(_position(cursor))
    return list(found.items())


def _positions(
    session: Session, group_id: str, ref: TopicRef, indexes: Sequence[int]
) -> list[_Position]:
    try:
        topic: Topic | None = topic_for(session, ref, Operation.DESCRIBE)
    except (Unauthorized, UnknownTopicId) as error:
        return _nothing([(ref, indexes)], code_of(error))[0][1]
    except TopicNotFound:
        topic = None  # Kafka does not look whether a topic is there, only for a position.
    group = group_name(session, group_id)
    positions = []
    for index in indexes:
        cursor = None
        if topic is not None and index >= 0:
            cursor = session.node.cursors.fetch(group, topic.uuid, index)
        positions.append(_none(index) if cursor is None else _position(cursor))
    return positions


def _position(cursor: Cursor) -> _Position:
    return cursor.number, cursor.offset, cursor.leader_epoch, cursor.metadata, ErrorCode.NONE


def _none(index: int, code: ErrorCode = ErrorCode.NONE) -> _Position:
    return index, NO_OFFSET, UNKNOWN_EPOCH, "", code


def _nothing(asked: Sequence[tuple[TopicRef, Sequence[int]]], code: ErrorCode) -> _Topics:
    return [(ref, [_none(index, code) for index in indexes]) for ref, indexes in asked]
