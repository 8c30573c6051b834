"""Parser of a lane's journal entries; ``features.queue.journal_layout`` has the layout."""

from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Final

from features.queue.journal_layout import (
    COUNT_LAYOUT,
    GROUP_LAYOUT,
    KIND_DONE,
    KIND_EXTEND,
    KIND_RETURN,
    KIND_SNAPSHOT,
    KIND_SPARED,
    KIND_TAKE,
    LEASE_LAYOUT,
    MESSAGES_MAX,
    NO_KEY,
    NUMBER_LAYOUT,
    RANGE_LAYOUT,
    RETURN_LAYOUT,
    SPARED_LAYOUT,
    TAKE_LAYOUT,
    TIMED_LAYOUT,
    Change,
    Done,
    Extend,
    Group,
    Lease,
    Move,
    Ranges,
    Return,
    Snapshot,
    Spared,
    Take,
    Waiting,
)
from features.queue.retrying import DeliveryEnd
from gateway.errors import CorruptBatch

_ENDINGS: Final = {ending.value: ending for ending in DeliveryEnd}


def parse(entry: bytes) -> list[Change]:
    """Return an entry's changes in order. Error: ``CorruptBatch`` when it is none."""
    changes: list[Change] = []
    reader = _Reader(entry)
    try:
        while reader.at < len(entry):
            changes.append(reader.read_change())
    except StructError as error:
        raise CorruptBatch(f"a queue's journal entry ends early: {error}") from error
    return changes


class _Reader:
    """A cursor over an entry."""

    __slots__ = ("_entry", "_room", "at")

    def __init__(self, entry: bytes) -> None:
        self._entry = entry
        self._room = MESSAGES_MAX
        self.at = 0

    def read_change(self) -> Change:
        kind = self._entry[self.at]
        if kind == KIND_TAKE:
            _, flags, due_unix_ms, next_offset, count = self._unpack(TAKE_LAYOUT)
            groups = [self._read_group() for _ in range(self._check(count))]
            return Take(bool(flags), due_unix_ms, next_offset, groups)
        if kind == KIND_DONE:
            self.at += 1
            return Done(self._read_offsets())
        if kind == KIND_RETURN:
            _, flags, due_unix_ms = self._unpack(RETURN_LAYOUT)
            if flags not in _ENDINGS:
                raise CorruptBatch(f"a return with the flags {flags}")
            return Return(_ENDINGS[flags], due_unix_ms, self._read_offsets())
        if kind == KIND_SPARED:
            _, spared = self._unpack(SPARED_LAYOUT)
            return Spared(spared, self._read_offsets())
        if KIND_EXTEND <= kind <= KIND_SNAPSHOT:
            return self._read_timed()
        raise CorruptBatch(f"no change of a queue is of kind {kind}")

    def _read_timed(self) -> Change:
        kind, number = self._unpack(TIMED_LAYOUT)
        if kind == KIND_EXTEND:
            return Extend(number, self._read_offsets())
        if number < 0:
            raise CorruptBatch("an offset is negative")
        if kind != KIND_SNAPSHOT:
            return Move(kind, number)
        early = self._read_ranges()
        leases: list[Lease] = []
        for _ in range(self._read_count()):
            flags, due_unix_ms = self._unpack(LEASE_LAYOUT)
            leases.append(Lease(bool(flags), due_unix_ms, self._read_group()))
        waiting: list[Waiting] = []
        for _ in range(self._read_count()):
            (due_unix_ms,) = self._unpack(NUMBER_LAYOUT)
            waiting.append(Waiting(due_unix_ms, self._read_group()))
        return Snapshot(number, early, leases, waiting)

    def _read_group(self) -> Group:
        attempts, first_taken_unix_ms, key_bytes = self._unpack(GROUP_LAYOUT)
        key: bytes | None = None
        if key_bytes != NO_KEY:
            key = self._entry[self.at : self.at + key_bytes]
            if len(key) != key_bytes:
                raise CorruptBatch("a key ends early")
            self.at += key_bytes
        return Group(attempts, first_taken_unix_ms, key, self._read_offsets())

    def _read_offsets(self) -> Ranges:
        """Return ranges of messages that are named one by one."""
        ranges = self._read_ranges()
        self._room -= sum(map(len, ranges))
        if self._room < 0:
            raise CorruptBatch(f"more than {MESSAGES_MAX} messages in an entry")
        return ranges

    def _read_ranges(self) -> Ranges:
        ranges: Ranges = []
        end = 0
        for _ in range(self._read_count()):
            first, count = self._unpack(RANGE_LAYOUT)
            if first < end or not 0 < count <= MESSAGES_MAX:
                raise CorruptBatch("offsets are not in order")
            end = first + count
            ranges.append(range(first, end))
        return ranges

    def _read_count(self) -> int:
        (count,) = self._unpack(COUNT_LAYOUT)
        return self._check(count)

    def _check(self, count: int) -> int:
        """Return a count for which there may be bytes enough."""
        if count > len(self._entry) - self.at:
            raise CorruptBatch(
                f"a count of {count} in the {len(self._entry)} bytes of an entry"
            )
        return count

    def _unpack(self, layout: Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self._entry, self.at)
        self.at += layout.size
        return values
