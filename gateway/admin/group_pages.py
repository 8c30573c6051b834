"""Pages of consumer groups and of their positions, with lag in messages and in time."""

from typing import Any, Final

from gateway.admin.live import POSITIONS_MAX, lags
from gateway.admin.paging import Page
from gateway.errors import GatewayError, InvalidRequest
from gateway.groups.cursors import Cursor
from gateway.groups.model import GroupName, GroupState
from gateway.kernel import Kernel
from gateway.model import parse_batch_header
from gateway.partition import Partition

GROUP_SORTS: Final = ("name", "members", "lag")
POSITION_SORTS: Final = ("partition", "lag")


async def group_page(kernel: Kernel, names: list[GroupName], page: Page) -> dict[str, Any]:
    """Return a page of groups; the lag is null while too many positions are committed."""
    found = page.names(names, lambda name: name.name)
    known = dict(lags(kernel)) if kernel.cursors.count <= POSITIONS_MAX else {}
    if page.sort == "lag":
        if not known and found:
            raise InvalidRequest(f"more than {POSITIONS_MAX} positions are not sorted by lag")
        rows = await page.cut_sorted(found, lambda name: known.get(name.name, 0))
    elif page.sort == "members":
        rows = await page.cut_sorted(found, lambda name: _member_count(kernel, name))
    else:
        rows = page.cut(found)
    return {
        "groups": [
            {
                "group_id": name.name,
                "state": _state(kernel, name),
                "members": _member_count(kernel, name),
                "positions": kernel.cursors.count_of(name),
                "lag": known.get(name.name),
            }
            for name in rows
        ],
        "total": len(found),
    }


async def position_page(kernel: Kernel, name: GroupName, page: Page) -> dict[str, Any]:
    """Return a page of a group's positions, sorted by topic and partition, or by lag."""
    cursors = [
        one for one in kernel.cursors.fetch_all(name) if page.contains in _topic(kernel, one)
    ]
    if page.sort == "lag":
        rows = await page.cut_sorted(cursors, lambda cursor: _lag(kernel, cursor) or 0)
    else:
        cursors.sort(key=lambda cursor: (_topic(kernel, cursor), cursor.number))
        rows = page.cut(cursors)
    return {"offsets": [await _position(kernel, one) for one in rows], "total": len(cursors)}


async def _position(kernel: Kernel, cursor: Cursor) -> dict[str, Any]:
    partition = partition_of(kernel, cursor)
    return {
        "topic": _topic(kernel, cursor),
        "partition": cursor.number,
        "offset": cursor.offset,
        "end": None if partition is None else partition.high_watermark,
        "lag": _lag(kernel, cursor),
        "behind_ms": None if partition is None else await _behind_ms(kernel, partition, cursor),
        "metadata": cursor.metadata,
        "committed_unix_ms": cursor.committed_unix_ms,
    }


async def _behind_ms(kernel: Kernel, partition: Partition, cursor: Cursor) -> int | None:
    """Return the age of the first batch that the group has not read; 0 at the end."""
    offset = max(cursor.offset, partition.log_start_offset)
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
