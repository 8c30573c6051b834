"""Holds: positions that retention and compaction do not pass.

A queue group or the archive holds a partition at the first offset that it has not settled. The
registry is in memory: holders store their own positions and register them at a start, before
retention and compaction begin. The bytes that holds may keep are bounded by the topic's
``hold.bytes.max``; above it producers are refused until a hold advances.

Loop only.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from gateway.errors import Overloaded, PolicyViolation
from gateway.memory_hooks import MemoryHooks
from gateway.partition import Partition
from gateway.storage import StorageAdapter

HOLDS_MAX: Final = 1_000  # of one partition
LOOKS_PER_BOUND: Final = 64  # how often a bound is looked at while as much is appended

_NOWHERE: Final = -1
_MAX_INT64: Final = (1 << 63) - 1


class HolderKind(StrEnum):
    """Kind of a holder. ``cleanup.policy=queue`` concerns those of kind queue."""

    QUEUE = "queue"
    ARCHIVE = "archive"


class Hold(NamedTuple):
    """Hold of ``name`` on all records from ``offset`` on."""

    name: str
    kind: HolderKind
    offset: int


class _Room(NamedTuple):
    """Cached check of a bound: its key, its result, and the bytes for which it is valid."""

    lowest: int
    wanted: int
    bytes_max: int
    is_over: bool
    valid_bytes: int


class RetentionHolds:
    """Registry of holds, and the bound on the data that they keep."""

    def __init__(self, storage: StorageAdapter) -> None:
        self._storage = storage
        self._holds: dict[int, dict[str, Hold]] = {}
        self.stopped: dict[int, int] = {}
        """Partitions in which holders are in retention's way: how far it wanted to go."""
        self._rooms: dict[int, _Room] = {}
        self._appended_bytes: dict[int, int] = {}
        self.refusals = 0
        self.memory = MemoryHooks()

    def __len__(self) -> int:
        return sum(map(len, self._holds.values()))

    # --- for who holds

    def hold(self, partition_id: int, name: str, kind: HolderKind, offset: int) -> None:
        """Hold a partition at ``offset``, the first that ``name`` needs; again moves the hold.

        Error: ``Overloaded`` above ``HOLDS_MAX`` holders of one partition.
        """
        holds = self._holds.setdefault(partition_id, {})
        # A topic's config names one archive at most, which finds room here always: retention
        # would pass it otherwise.
        is_bound = kind is not HolderKind.ARCHIVE
        if is_bound and name not in holds and len(holds) >= HOLDS_MAX:
            msg = f"partition {partition_id} has {HOLDS_MAX} holders already"
            raise Overloaded(msg)
        holds[name] = Hold(name, kind, offset)

    def release(self, partition_id: int, name: str) -> None:
        """Release a hold of the partition."""
        holds = self._holds.get(partition_id, {})
        holds.pop(name, None)
        if not holds:
            self._holds.pop(partition_id, None)

    def forget(self, partition_ids: Iterable[int]) -> None:
        """Forget deleted partitions."""
        for partition_id in partition_ids:
            for table in (self._holds, self.stopped, self._rooms, self._appended_bytes):
                table.pop(partition_id, None)

    # --- for retention and compaction

    def of(self, partition_id: int) -> list[Hold]:
        """Return the holds of a partition, lowest first."""
        holds = self._holds.get(partition_id, {}).values()
        return sorted(holds, key=lambda hold: (hold.offset, hold.name))

    def lowest(self, partition_id: int) -> int | None:
        """Return the lowest held offset, None without holds."""
        holds = self._holds.get(partition_id)
        return min(hold.offset for hold in holds.values()) if holds else None

    def settled(self, partition_id: int) -> int | None:
        """Return the offset below which all queue groups have settled, None without any."""
        holds = self._holds.get(partition_id, {}).values()
        return min(
            (hold.offset for hold in holds if hold.kind is HolderKind.QUEUE), default=None
        )

    def limit(self, partition_id: int, wanted: int | None) -> int | None:
        """Return the offset up to which retention may go, at most ``wanted``, or None.

        What it wanted is remembered: the bound is about what goes beyond holders.
        """
        lowest = self.lowest(partition_id)
        if wanted is None or lowest is None or wanted <= lowest:
            self.stopped.pop(partition_id, None)
            return wanted
        self.stopped[partition_id] = wanted
        return lowest

    # --- for producers

    def check_room(self, partition: Partition, size_bytes: int) -> None:
        """Raise ``PolicyViolation`` when holders keep more of the partition than they may.

        Of a partition in memory ``Overloaded``: that bound is small, and producers try again.

        With ``cleanup.policy=queue`` that is about all that is not settled, else about what
        retention would have removed. ``size_bytes`` are about to be appended; what was found
        holds for some bytes, so that not every append looks.
        """
        settings = partition.topic.settings
        if settings.in_memory:
            self.memory.check_room(size_bytes)
        if settings.hold_bytes_max < 0:
            return
        partition_id = partition.partition_id
        lowest = self.lowest(partition_id)
        wanted = self.stopped.get(partition_id, _NOWHERE)
        if settings.is_queue:
            # All of it would go if it were settled; one that nobody reads holds all there is.
            lowest = partition.log_start_offset if lowest is None else lowest
            wanted = _MAX_INT64
        if lowest is None or wanted <= lowest:
            return
        # Who deletes records passes holders, too: what is gone is kept by nobody.
        lowest = max(lowest, partition.log_start_offset)
        appended_bytes = self._appended_bytes.get(partition_id, 0) + size_bytes
        room = self._rooms.get(partition_id)
        is_same = room is not None and room[:3] == (lowest, wanted, settings.hold_bytes_max)
        if (
            room is None
            or not is_same
            or appended_bytes > room.valid_bytes
            or (room.is_over and settings.in_memory)
        ):
            if settings.in_memory:  # its bound is small, and holds move once a second
                self.memory.renew_holds(partition)
                lowest = max(self.lowest(partition_id) or lowest, partition.log_start_offset)
            room = self._look(partition, lowest, wanted)
            appended_bytes = size_bytes
        self._appended_bytes[partition_id] = appended_bytes
        if room.is_over:
            self.refusals += 1
            names = ", ".join(hold.name for hold in self.of(partition_id)[:3]) or "nobody reads"
            msg = (
                f"more than hold.bytes.max, {settings.hold_bytes_max} bytes, of "
                f"{partition.topic.name.name}-{partition.number} wait to be settled: {names}"
            )
            if settings.in_memory:
                raise Overloaded(msg.replace("hold.bytes.max", "memory.bytes.max"))
            raise PolicyViolation(msg)

    def _look(self, partition: Partition, lowest: int, wanted: int) -> _Room:
        bytes_max = partition.topic.settings.hold_bytes_max
        partition_id = partition.partition_id
        first_within = self._storage.offset_for_size(partition_id, bytes_max)
        room = _Room(
            lowest, wanted, bytes_max, lowest < first_within, bytes_max // LOOKS_PER_BOUND
        )
        self._rooms[partition_id] = room
        return room
