"""Pages of groups and of their positions, with lag in messages and in time."""

from collections.abc import Sequence
from typing import Any, Final

from gateway.admin.live import POSITIONS_MAX, lags
from gateway.admin.paging import Page
from gateway.admin.share_groups import (
    group_type,
    is_share_group,
    share_position_view,
    share_positions,
    totals_of,
)
from gateway.errors import GatewayError, InvalidRequest
from gateway.groups.cursors import Cursor
from gateway.groups.model import GroupName, GroupState
from gateway.kernel import Kernel
from gateway.model import parse_batch_header
from gateway.partition import Partition
from gateway.queues.queue import Queue
from gateway.shares.group_queues import share_queues

GROUP_SORTS: Final = ("name", "members", "lag")
POSITION_SORTS: Final = ("partition", "lag")


async def group_page(kernel: Kernel, names: list[GroupName], page: Page) -> dict[str, Any]:
    """Return a page of groups; the lag is null while too many positions are committed."""
    found = page.names(names, lambda name: name.name)
    is_known = kernel.cursors.count <= POSITIONS_MAX
    known = dict(lags(kernel)) if is_known else {}
    shared = _shared(kernel, found)
    if page.sort == "lag":
        if not is_known and found:
            raise InvalidRequest(f"more than {POSITIONS_MAX} positions are not sorted by lag")

        def lag(name: GroupName) -> int:
            queues = shared.get(name)
            return known.get(name.name, 0) if queues is None else totals_of(queues).lag

        rows = await page.cut_sorted(found, lag)
    elif page.sort == "members":
        rows = await page.cut_sorted(found, lambda name: _member_count(kernel, name))
    else:
        rows = page.cut(found)
    return {
        "groups": [
            {
                "group_id": name.name,
                "type": group_type(kernel.groups.find(name)),
                "state": _state(kernel, name),
                "members": _member_count(kernel, name),
                "positions": kernel.cursors.count_of(name),
                "lag": known.get(name.name),
                "in_flight": None,
                **(totals_of(shared[name])._asdict() if name in shared else {}),
            }
            for name in rows
        ],
        "total": len(found),
    }


def _shared(kernel: Kernel, names: Sequence[GroupName]) -> dict[GroupName, list[Queue]]:
    """Return the queues of those groups that are share groups."""
    wanted = [name for name in names if is_share_group(kernel, name)]
    by_namespace = {
        namespace: share_queues(kernel.queues, namespace)
        for namespace in {name.namespace for name in wanted}
    }
    return {name: by_namespace[name.namespace].get(name.name, []) for name in wanted}


async def position_page(kernel: Kernel, name: GroupName, page: Page) -> dict[str, Any]:
    """Return a page of a group's positions, sorted by topic and partition, or by lag."""
    if is_share_group(kernel, name):
        return await _share_page(kernel, name, page)
    cursors = [
        one for one in kernel.cursors.fetch_all(name) if page.contains in _topic(kernel, one)
    ]
    if page.sort == "lag":
        rows = await page.cut_sorted(cursors, lambda cursor: _lag(kernel, cursor) or 0)
    else:
        cursors.sort(key=lambda cursor: (_topic(kernel, cursor), cursor.number))
        rows = page.cut(cursors)
    return {"offsets": [await _position(kernel, one) for one in rows], "total": len(cursors)}


async def _share_page(kernel: Kernel, name: GroupName, page: Page) -> dict[str, Any]:
    found = [
        one for one in share_positions(kernel, name) if page.contains in one.topic.name.name
    ]
    if page.sort == "lag":
        rows = await page.cut_sorted(found, lambda one: one.lag)
    else:
        rows = page.cut(found)
    offsets = [
        {
            **share_position_view(one),
            "behind_ms": await _behind_ms(kernel, one.lane.partition, one.start_offset),
        }
        for one in rows
    ]
    return {"offsets": offsets, "total": len(found)}


async def _position(kernel: Kernel, cursor: Cursor) -> dict[str, Any]:
    partition = partition_of(kernel, cursor)
    return {
        "topic": _topic(kernel, cursor),
        "partition": cursor.number,
        "offset": cursor.offset,
        "end": None if partition is None else partition.high_watermark,
        "lag": _lag(kernel, cursor),
        "behind_ms": None
        if partition is None
        else await _behind_ms(kernel, partition, cursor.offset),
        "metadata": cursor.metadata,
        "committed_unix_ms": cursor.committed_unix_ms,
    }


async def _behind_ms(kernel: Kernel, partition: Partition, offset: int) -> int | None:
    """Return the age of the first batch that the group has not read; 0 at the end."""
    offset = max(offset, partition.log_start_offset)
    if offset >= partition.stable_end:
        return 0
    try:
        batches = await kernel.broker.read_disk(partition, offset, bytes_max=1)
    except GatewayError:
        return None
    if not batches:
        return None
    written_unix_ms = parse_batch_header(batches[0]).base_timestamp_unix_ms
    return max(0, kernel.clock.unix_ms() - written_unix_ms)


def partition_of(kernel: Kernel, cursor: Cursor) -> Partition | None:
    """Return the partition of a position; None if it is gone or another node's."""
    topic = kernel.topics.by_uuid(cursor.topic_uuid)
    if topic is None or cursor.number >= len(topic.partition_ids):
        return None
    owned = kernel.broker.owns(topic, cursor.number)
    return kernel.broker.partition(topic, cursor.number) if owned else None


def _lag(kernel: Kernel, cursor: Cursor) -> int | None:
    partition = partition_of(kernel, cursor)
    return None if partition is None else max(0, partition.high_watermark - cursor.offset)


def _topic(kernel: Kernel, cursor: Cursor) -> str:
    topic = kernel.topics.by_uuid(cursor.topic_uuid)
    return str(cursor.topic_uuid) if topic is None else topic.name.name


def _state(kernel: Kernel, name: GroupName) -> str:
    group = kernel.groups.find(name)
    return (GroupState.EMPTY if group is None else group.state).value


def _member_count(kernel: Kernel, name: GroupName) -> int:
    group = kernel.groups.find(name)
    return 0 if group is None else len(group.members)
