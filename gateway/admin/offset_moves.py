"""Moves of a group's committed offsets: computed first, and committed unless it is a preview."""

from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import Field

from gateway.admin.share_groups import is_share_group, position_on
from gateway.config.base import FrozenConfig
from gateway.errors import GroupNotEmpty, InvalidRequest, OffsetOutOfRange, TopicNotFound
from gateway.futures import await_done
from gateway.groups.cursors import Commit
from gateway.groups.model import GroupName
from gateway.kernel import Kernel
from gateway.model import TopicName, check_topic_name
from gateway.partition import Partition
from gateway.topics.manager import Topic


class NewOffsets(FrozenConfig):
    """Body of ``POST /v1/groups/<group>/offsets``; without ``partition``, all of the topic.

    One of ``to``, ``to_time_unix_ms`` and ``shift_by`` says where to. ``topic_uuid`` is for who
    knows the topic by it: one that was deleted and made anew is none.
    """

    topic: str
    topic_uuid: UUID | None = None
    partition: int | None = Field(default=None, ge=0)
    to: str | None = None
    to_time_unix_ms: int | None = Field(default=None, ge=0)
    shift_by: int | None = None
    dry_run: bool = False


class OffsetMove(NamedTuple):
    """Change of one partition's committed offset; ``before`` is None where there is none."""

    partition: int
    before: int | None
    offset: int
    end: int


async def move_offsets(
    kernel: Kernel, name: GroupName, body: NewOffsets
) -> list[dict[str, Any]]:
    """Commit offsets for a group without members, which need not exist; return them.

    Of a share group the start offsets move, in topics that it reads.

    A preview returns those before, and the ends, beside them.

    Errors: ``GroupNotEmpty``, ``TopicNotFound``, ``InvalidRequest``, ``OffsetOutOfRange``.
    """
    kernel.groups.owners.check(name)
    if not body.dry_run:
        _check_idle(kernel, name)
    topic = _topic_of(kernel, name, body)
    numbers = range(len(topic.partition_ids)) if body.partition is None else [body.partition]
    moves = []
    for number in numbers:
        partition = kernel.broker.partition(topic, number)
        before = _before(kernel, name, topic, number)
        offset = await _offset(kernel, partition, body, before)
        moves.append(OffsetMove(number, before, offset, partition.high_watermark))
    if body.dry_run:
        return [{"topic": body.topic, **move._asdict()} for move in moves]
    _check_idle(kernel, name)  # a member may have come while times were looked up
    if is_share_group(kernel, name):
        for move in moves:
            lane = position_on(kernel, name, topic, move.partition).lane
            await await_done(partial(lane.seek, move.offset))
    else:
        commits = [Commit(topic.uuid, move.partition, move.offset) for move in moves]
        await await_done(lambda on_done: kernel.cursors.commit(name, commits, on_done))
    return [
        {"topic": body.topic, "partition": move.partition, "offset": move.offset}
        for move in moves
    ]


def _before(kernel: Kernel, name: GroupName, topic: Topic, number: int) -> int | None:
    """Return a group's position in a partition; None for none."""
    if is_share_group(kernel, name):
        return position_on(kernel, name, topic, number).start_offset
    cursor = kernel.cursors.fetch(name, topic.uuid, number)
    return None if cursor is None else cursor.offset


def _check_idle(kernel: Kernel, name: GroupName) -> None:
    group = kernel.groups.find(name)
    if group is not None and not group.is_idle:
        msg = f"group {name.name!r} has members, who would commit over it; stop them first"
        raise GroupNotEmpty(msg)


def _topic_of(kernel: Kernel, name: GroupName, body: NewOffsets) -> Topic:
    topic = kernel.topics.get(TopicName(name.namespace, check_topic_name(body.topic)))
    if body.topic_uuid not in {None, topic.uuid}:
        msg = f"topic {body.topic} is there, but not the one with the uuid {body.topic_uuid}"
        raise TopicNotFound(msg)
    return topic


async def _offset(
    kernel: Kernel, partition: Partition, body: NewOffsets, before: int | None
) -> int:
    given = [body.to, body.to_time_unix_ms, body.shift_by]
    if sum(one is not None for one in given) != 1:
        raise InvalidRequest("give one of to, to_time_unix_ms and shift_by")
    if body.to_time_unix_ms is not None:
        found = await kernel.broker.offset_for_time(partition, body.to_time_unix_ms)
        return partition.high_watermark if found is None else found[0]
    if body.shift_by is not None:
        start = partition.log_start_offset if before is None else before
        shifted = start + body.shift_by
        return min(max(shifted, partition.log_start_offset), partition.high_watermark)
    return _named_offset(partition, body.to or "")


def _named_offset(partition: Partition, to: str) -> int:
    if to == "earliest":
        return partition.log_start_offset
    if to == "latest":
        return partition.high_watermark
    if not (to.isascii() and to.isdigit()):
        msg = f"to: earliest, latest or an offset, not {to[:80]!r}"
        raise InvalidRequest(msg)
    if not partition.log_start_offset <= int(to) <= partition.high_watermark:
        msg = (
            f"offset {to[:20]} of partition {partition.number} is not "
            f"{partition.log_start_offset} to {partition.high_watermark}"
        )
        raise OffsetOutOfRange(msg)
    return int(to)
