"""OffsetFetch: API key 9, versions 1 to 10.

v2   null requests all topics; an error code for the whole group
v3   throttle_time_ms
v5   committed_leader_epoch (KIP-320)
v6   flexible encoding (KIP-482)
v7   require_stable (KIP-447): an offset that an open transaction may change is not returned
v8   several groups at once (KIP-709)
v9   member_id and member_epoch (KIP-848); ignored for classic groups
v10  topic ids (KIP-516)
"""

from collections.abc import Awaitable, Iterator, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.protocol.consumer import OffsetFetchRequest, OffsetFetchResponse

from adapters.kafka.access.authorization import topic_for
from adapters.kafka.codec import TopicRef
from adapters.kafka.codecs import schema_codec
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.groups.coordinator import check_group, group_code_of, group_name
from adapters.kafka.node.large_requests import (
    SLICE_ELEMENTS,
    SliceCounter,
    join_slices,
    slices,
    topic_slices,
    yield_to_loop,
)
from adapters.kafka.session import Session
from gateway.auth.ports import Operation, ResourceType
from gateway.errors import GatewayError, PeerError, TopicNotFound, Unauthorized, UnknownTopicId
from gateway.groups.cursors import UNKNOWN_EPOCH, Cursor
from gateway.groups.model import GroupName
from gateway.topics.manager import Topic

API_KEY: Final = 9
VERSIONS: Final = range(1, 11)

GROUP_ERROR_FROM: Final = 2
GROUPS_FROM: Final = 8
MEMBER_FROM: Final = 9
STABLE_FROM: Final = 7
TOPIC_IDS_FROM: Final = 10
NO_OFFSET: Final = -1

_Position = tuple[int, int, int, str, ErrorCode]  # index, offset, epoch, metadata, code
_Topics = list[tuple[TopicRef, list[_Position]]]
_AskedTopics = Sequence[tuple[TopicRef, Sequence[int]]]


class _Member(NamedTuple):
    """Member of a group of the new protocol that asks; nobody has no id and the epoch -1."""

    member_id: str | None = None
    epoch: int = -1


class _Wish(NamedTuple):
    """Form of the response: topics by id, and offsets only if no transaction may change them."""

    by_id: bool
    stable: bool


_NOBODY: Final = _Member()
_Asked = list[tuple[str, _AskedTopics | None, _Member]]
_Answer = tuple[str, ErrorCode, _Topics, _AskedTopics | None]


def handle(
    request: OffsetFetchRequest, session: Session, version: int
) -> OffsetFetchResponse | Awaitable[bytearray]:
    """Return the committed offsets of groups; -1 where there is none."""
    asked = _asked(request, version)
    count_of = session.node.cursors.count_of
    if sum(
        count_of(group_name(session, name)) for name, topics, _ in asked if topics is None
    ) > (SLICE_ELEMENTS):
        return _answer_large(asked, session, version, _wish(request, version))
    wish = _wish(request, version)
    return _respond(
        version,
        [
            (group_id, *_fetch(session, group_id, topics, member, wish), topics)
            for group_id, topics, member in asked
        ],
    )


async def handle_large(
    request: OffsetFetchRequest, session: Session, version: int
) -> bytearray:
    """Do as ``handle``, in slices. Error: ``PeerError`` for too many offsets in the response."""
    asked = await session.node.large_request_thread.run(_asked, request, version)
    return await _answer_large(asked, session, version, _wish(request, version))


def _wish(request: Any, version: int) -> _Wish:  # noqa: ANN401 - generated
    return _Wish(
        by_id=version >= TOPIC_IDS_FROM,
        stable=version >= STABLE_FROM and request.require_stable,
    )


async def _answer_large(
    asked: _Asked, session: Session, version: int, wish: _Wish
) -> bytearray:
    node = session.node
    answers: list[_Answer] = []
    slice_counter, left = SliceCounter(), node.config.request_elements_max
    for group_id, topics, member in asked:
        code, found = ErrorCode.NONE, []
        for outcome, some in _fetch_slices(session, group_id, topics, member, wish):
            code = outcome
            found.append(some)
            count = 1 + sum(1 + len(positions) for _, positions in some)
            left -= count
            if left < 0:
                msg = f"positions asked for are more than {node.config.request_elements_max}"
                raise PeerError(msg)
            if slice_counter.is_over(count):
                await yield_to_loop()
        joined = found[0] if found else []
        if topics is None:
            joined = _merged(found)
        elif code is ErrorCode.NONE:
            joined = join_slices(topics, found)
        answers.append((group_id, code, joined, topics))
    return await node.large_request_thread.run(_encode, version, answers)


def _fetch_slices(
    session: Session,
    group_id: str,
    topics: _AskedTopics | None,
    member: _Member,
    wish: _Wish,
) -> Iterator[tuple[ErrorCode, _Topics]]:
    """Yield the results of ``_fetch`` slice by slice; at least one."""
    code, _ = _fetch(session, group_id, (), member, wish)
    if code is not ErrorCode.NONE:
        yield code, []
    elif topics is not None:
        for part in topic_slices(topics):
            yield _fetch(session, group_id, part, member, wish)
    else:
        cursors = session.node.cursors
        group = group_name(session, group_id)
        for keys in slices(cursors.keys_of(group)):
            yield ErrorCode.NONE, _shown(session, group, cursors.fetch_keys(keys), wish)


def _merged(found: Sequence[_Topics]) -> _Topics:
    """Return the offsets of each topic together, joined from several slices."""
    merged: dict[TopicRef, list[_Position]] = {}
    for some in found:
        for ref, positions in some:
            merged.setdefault(ref, []).extend(positions)
    return list(merged.items())


def _encode(version: int, answers: list[_Answer]) -> bytearray:
    return schema_codec.encode_response(_respond(version, answers), version)


def _respond(version: int, answers: list[_Answer]) -> OffsetFetchResponse:
    if version >= GROUPS_FROM:
        return OffsetFetchResponse(
            version=version, groups=[_to_group(*answer) for answer in answers]
        )
    [(_, code, found, topics)] = answers
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


def _to_group(
    group_id: str,
    code: ErrorCode,
    found: _Topics,
    _asked: _AskedTopics | None,
) -> Any:  # noqa: ANN401 - generated
    kind = OffsetFetchResponse.OffsetFetchResponseGroup
    return kind(
        group_id=group_id,
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


def _asked(request: Any, version: int) -> _Asked:  # noqa: ANN401 - generated
    """Return each group with its requested partitions; None for all of them."""
    if version >= GROUPS_FROM:
        return [
            (group.group_id, _topics(group.topics, version), _member(group, version))
            for group in request.groups
        ]
    return [(request.group_id, _topics(request.topics, version), _NOBODY)]


def _member(group: Any, version: int) -> _Member:  # noqa: ANN401 - generated
    if version < MEMBER_FROM:
        return _NOBODY
    return _Member(group.member_id, group.member_epoch)


def _topics(topics: Any, version: int) -> _AskedTopics | None:  # noqa: ANN401 - generated
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
    asked: _AskedTopics | None,
    member: _Member,
    wish: _Wish,
) -> tuple[ErrorCode, _Topics]:
    """Return the group's error code, and the requested offsets; all of them for None."""
    try:
        check_group(session, Operation.DESCRIBE, group_id)
        session.node.cursors.check_loaded()
        name = group_name(session, group_id)
        session.node.groups.owners.check(name)
        if member != _NOBODY:
            session.node.groups.check_fetch(name, member.member_id or "", member.epoch)
    except GatewayError as error:
        return group_code_of(error), []
    if asked is None:
        cursors = session.node.cursors.fetch_all(name)
        return ErrorCode.NONE, _shown(session, name, cursors, wish)
    return ErrorCode.NONE, [
        (ref, _positions(session, name, ref, indexes, wish)) for ref, indexes in asked
    ]


def _shown(
    session: Session, group: GroupName, cursors: Sequence[Cursor], wish: _Wish
) -> _Topics:
    """Return the offsets by topic, without topics that the session may not describe."""
    node = session.node
    found: dict[TopicRef, list[_Position]] = {}
    for cursor in cursors:
        topic = node.topics.by_uuid(cursor.topic_uuid)
        if topic is None:
            continue  # It is being deleted.
        name = topic.name.name
        if session.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
            ref = topic.uuid if wish.by_id else name
            position = _position(cursor)
            if wish.stable and node.cursors.is_unstable(group, topic.uuid, cursor.number):
                position = _none(cursor.number, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            found.setdefault(ref, []).append(position)
    return list(found.items())


def _positions(
    session: Session, group: GroupName, ref: TopicRef, indexes: Sequence[int], wish: _Wish
) -> list[_Position]:
    try:
        topic: Topic | None = topic_for(session, ref, Operation.DESCRIBE)
    except (Unauthorized, UnknownTopicId) as error:
        return _nothing([(ref, indexes)], code_of(error))[0][1]
    except TopicNotFound:
        topic = None  # As in Kafka: only the offset is looked up, not the topic.
    cursors = session.node.cursors
    positions = []
    for index in indexes:
        cursor = None
        if topic is not None and index >= 0:
            if wish.stable and cursors.is_unstable(group, topic.uuid, index):
                positions.append(_none(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
                continue
            cursor = cursors.fetch(group, topic.uuid, index)
        positions.append(_none(index) if cursor is None else _position(cursor))
    return positions


def _position(cursor: Cursor) -> _Position:
    return cursor.number, cursor.offset, cursor.leader_epoch, cursor.metadata, ErrorCode.NONE


def _none(index: int, code: ErrorCode = ErrorCode.NONE) -> _Position:
    return index, NO_OFFSET, UNKNOWN_EPOCH, "", code


def _nothing(asked: Sequence[tuple[TopicRef, Sequence[int]]], code: ErrorCode) -> _Topics:
    return [(ref, [_none(index, code) for index in indexes]) for ref, indexes in asked]
