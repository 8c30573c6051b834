"""Offsets: of groups (14, 15), and of queues by end (30), start (31) and time (29)."""

from functools import partial
from typing import Final

from adapters.rocketmq.consuming.offset_commits import commit_offset
from adapters.rocketmq.names import check_group
from adapters.rocketmq.node import group_name
from adapters.rocketmq.remoting.errors import Refused
from adapters.rocketmq.remoting.fields import flag_of, number_of, text_of
from adapters.rocketmq.remoting.wire import ResponseCode
from adapters.rocketmq.request import Request
from gateway.auth.ports import Operation, ResourceType
from gateway.errors import StorageUnavailable
from gateway.partition import Partition

_UPPER: Final = "UPPER"


def query_consumer_offset(request: Request) -> None:
    """Answer with a group's committed offset; QUERY_NOT_FOUND lets the client choose its start.

    As on a server, a new group starts at 0 in a young queue, whatever it says: if the queue has
    all its messages still, and the first of them is at hand.
    """
    group, partition = _group_and_queue(request)
    cursor = request.node.kernel.cursors.fetch(
        group_name(group), partition.topic.uuid, partition.number
    )
    if cursor is not None:
        _answer(request, cursor.offset)
        return
    may_be_zero = flag_of(request.fields, "setZeroIfNotFound", default=True)
    if may_be_zero and _is_young(request, partition):
        _answer(request, 0)
        return
    remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
    raise Refused(ResponseCode.QUERY_NOT_FOUND, remark)


def _is_young(request: Request, partition: Partition) -> bool:
    if partition.log_start_offset or not partition.stable_end:
        return False
    return bool(request.node.kernel.broker.read(partition, 0, bytes_max=1))


def update_consumer_offset(request: Request) -> None:
    """Store a group's offset; answered when it is durable, unless oneway."""
    group, partition = _group_and_queue(request)
    offset = number_of(request.fields, "commitOffset")
    commit_offset(request.node, group, partition, offset, partial(_on_stored, request))


def _on_stored(request: Request, error: StorageUnavailable | None) -> None:
    if error is None:
        request.reply()
    else:
        request.fail(error)


def max_offset(request: Request) -> None:
    """Answer with the offset after the last message."""
    _answer(request, _queue(request).stable_end)


def min_offset(request: Request) -> None:
    """Answer with the offset of the first message."""
    _answer(request, _queue(request).log_start_offset)


def offset_by_time(request: Request) -> None:
    """Answer with the first offset stored at or after a time, or the end; see ``_find``."""
    request.start(_find(request, _queue(request)))


async def _find(request: Request, partition: Partition) -> None:
    """Answer; with the boundary UPPER, the last offset stored at or before the time."""
    timestamp = number_of(request.fields, "timestamp")
    is_upper = request.fields.get("boundaryType", "").upper() == _UPPER
    found = await request.node.kernel.broker.offset_for_time(partition, timestamp + is_upper)
    offset = partition.stable_end if found is None else found[0]
    _answer(request, max(offset - is_upper, partition.log_start_offset))


def _group_and_queue(request: Request) -> tuple[str, Partition]:
    group = check_group(text_of(request.fields, "consumerGroup"))
    request.authorize(Operation.READ, ResourceType.GROUP, group)
    return group, _queue(request, Operation.READ)


def _queue(request: Request, operation: Operation = Operation.DESCRIBE) -> Partition:
    topic = text_of(request.fields, "topic")
    request.authorize(operation, ResourceType.TOPIC, topic)
    return request.node.partition(topic, number_of(request.fields, "queueId"))


def _answer(request: Request, offset: int) -> None:
    request.reply({"offset": str(offset)})
