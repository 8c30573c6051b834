"""Committed offsets of groups, compared with the bounds of partitions."""

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from pipeline.audit import findings as kinds
from pipeline.audit.compacted import records_of
from pipeline.audit.findings import Finding
from pipeline.log.options import Options
from pipeline.log.views import PartitionView

# As ``gateway.groups.cursors`` writes them; docs/formats.md has the layout.
_CURSORS_TOPIC: Final = "__cursors"
_CURSOR_KEY: Final = 1
_LENGTHS: Final = struct.Struct(">II")
_WHERE: Final = struct.Struct(">16sI")
_VALUE: Final = struct.Struct(">Bq")
_KEY_BYTES_MIN: Final = 1 + _LENGTHS.size + _WHERE.size


class CommittedOffset(NamedTuple):
    """Committed offset of a group in a partition."""

    group: str
    topic_uuid: UUID
    number: int
    offset: int


def check_groups(
    views: Mapping[int, PartitionView], found: Mapping[str, PartitionView], options: Options
) -> Iterator[Finding]:
    """Yield committed offsets outside their partition's bounds."""
    by_identity = {
        (view.identity.topic_uuid, view.identity.number): view for view in found.values()
    }
    for one in committed(views.values(), options):
        view = by_identity.get((one.topic_uuid, one.number))
        if view is None or view.start <= one.offset <= view.end:
            continue
        where = view.identity.topic.name, one.number
        if one.offset > view.end:
            text = f"group {one.group}: {one.offset} is committed, the end is {view.end}"
            count = one.offset - view.end
            yield Finding(kinds.COMMIT_BEYOND, *where, view.end, one.offset - 1, count, text)
        else:
            text = f"group {one.group}: {one.offset} is committed, the start is {view.start}"
            count = view.start - one.offset
            yield Finding(kinds.COMMIT_BELOW, *where, one.offset, view.start - 1, count, text)


def committed(views: Iterable[PartitionView], options: Options) -> list[CommittedOffset]:
    """Return the last committed position of each group and partition in the log.

    A key that has moved to another shard is removed in one partition, and has its value in another.
    """
    values: dict[bytes, bytes] = {}
    for view in views:
        if view.identity.topic.name == _CURSORS_TOPIC:
            own: dict[bytes, bytes | None] = {}
            for record in records_of(view, options):
                if record.key and record.key[0] == _CURSOR_KEY:
                    own[record.key] = record.value
            values.update((key, value) for key, value in own.items() if value is not None)
    return [
        _position(key, value)
        for key, value in sorted(values.items())
        if len(value) >= _VALUE.size and len(key) >= _KEY_BYTES_MIN
    ]


def _position(key: bytes, value: bytes) -> CommittedOffset:
    uuid, number = _WHERE.unpack_from(key, len(key) - _WHERE.size)
    namespace_bytes, name_bytes = _LENGTHS.unpack_from(key, 1)
    name_at = 1 + _LENGTHS.size + namespace_bytes
    group = key[name_at : name_at + name_bytes].decode(errors="replace")
    return CommittedOffset(group, UUID(bytes=uuid), number, _VALUE.unpack_from(value)[1])
