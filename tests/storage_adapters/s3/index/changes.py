"""Objects and changes as the index is given them."""

from array import array
from collections.abc import Callable

from storage_adapters.formats.object_index import pack_rows
from storage_adapters.s3.change import BoundsRow, Change, NewObject, ObjectPart
from storage_adapters.s3.index import Index
from storage_adapters.s3.state import KIND_LOG, Extent, StoredObject

OpenIndex = Callable[..., Index]
STORED_UNIX_MS = 1_650_000_000_000


def part(number: int, partition_id: int = 7, first: int = 100) -> ObjectPart:
    extent = Extent(first, first + 50, number, 0, 2, 2_000, 1_600_000_000_123, ((3, first),))
    return ObjectPart(partition_id, extent)


def new_object(number: int, *parts: ObjectPart, epoch: int = 1) -> NewObject:
    held = list(parts or [part(number)])
    ids = frozenset([partition_id for partition_id, _ in held])
    stored = StoredObject(
        number, KIND_LOG, epoch, 11, 22, 3_333, f"etag{number}", STORED_UNIX_MS, ids
    )
    rows = array("q", (100, 5, 64 + (1_000 << 32), 25 + (3 << 32)) * 2)
    return NewObject(stored, held, pack_rows(rows))


def added(*numbers: int, epoch: int = 1, reserve: int = 0) -> Change:
    objects = tuple(new_object(number, epoch=epoch) for number in numbers)
    return Change(added=objects, reserve=reserve)


def bounds(partition_id: int, start: int = 4, *, is_deleted: bool = False) -> BoundsRow:
    return BoundsRow(partition_id, start, below_bytes=99, is_deleted=is_deleted)


def live(index: Index) -> list[int]:
    return [stored.number for stored, _ in index.load().objects]
