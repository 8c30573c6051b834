"""The entries that rebuild a lane. What time alone brings about (a lease is over) is not written.

An entry is one change or several on end; all numbers are big-endian. Offsets are signed 64-bit,
times unix milliseconds, signed 64-bit. Each change begins with one byte that says what it is:

    1 take      u8 flags (1: held by a connection), i64 lease's end, i64 next offset after it,
                u32 count of groups, groups
    2 done      ranges: acknowledged, moved to the dead letters, or dropped
    3 return    u8 flags (1: this attempt does not count; 2: it has not failed),
                i64 visible from (0: at once), ranges
    4 extend    i64 lease's end, ranges
    5 purge     i64 end: all before it is gone, whatever its state
    6 skip      i64 next offset: what was never handed out before it never will be
    7 seek      i64 next offset: all else is forgotten
    8 snapshot  i64 next offset, ranges handed out beyond it,
                u32 count, as often: u8 flags (as of take), i64 lease's end, group
                u32 count, as often: i64 visible from (0: at once), group
    9 spared    u32 deliveries that have not failed, ranges: of messages of the snapshot before

    group       u32 attempts, i64 first taken, i32 bytes of the key (-1: no key), key, ranges:
                messages of one key; a take's and a lease's were handed out that often with it
    ranges      u32 count, as often: i64 first offset, u32 messages, ascending

A take that is lost with the last entries changes nothing: its messages are handed out again.
What a change names and the lane does not have open was handed out by a take that was lost.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Final, NamedTuple

from features.queue.model import ContiguousTake, Effects
from features.queue.retrying import DeliveryEnd
from gateway.errors import CorruptBatch

MESSAGES_MAX: Final = 1 << 22
"""Limit of an entry's messages, and of one range handed out early; a larger count is garbage."""

_TAKE: Final = Struct(">BBqqI")
_RETURN: Final = Struct(">BBq")
_TIMED: Final = Struct(">Bq")
_GROUP: Final = Struct(">Iqi")
_LEASE: Final = Struct(">Bq")
_COUNT: Final = Struct(">I")
_SPARED: Final = Struct(">BI")
_NUMBER: Final = Struct(">q")
_RANGE: Final = Struct(">qI")
_ONE_RANGE: Final = Struct(">IqI")
_DONE_KIND: Final = b"\x02"
_NO_KEY: Final = -1

KIND_TAKE: Final = 1
KIND_DONE: Final = 2
KIND_RETURN: Final = 3
KIND_EXTEND: Final = 4
KIND_PURGE: Final = 5
KIND_SKIP: Final = 6
KIND_SEEK: Final = 7
KIND_SNAPSHOT: Final = 8
KIND_SPARED: Final = 9

_ENDINGS: Final = {ending.value: ending for ending in DeliveryEnd}

Ranges = list[range]


class Group(NamedTuple):
    """Messages of one key that were handed out equally often."""

    attempts: int
    first_taken_unix_ms: int
    key: bytes | None
    offsets: Ranges


class Lease(NamedTuple):
    """A group in flight."""

    is_held: bool
    due_unix_ms: int
    group: Group


class Waiting(NamedTuple):
    """A group that was given back. ``due_unix_ms`` is 0 for at once."""

    due_unix_ms: int
    group: Group


class Take(NamedTuple):
    """See the layout."""

    is_held: bool
    due_unix_ms: int
    next_offset: int
    groups: list[Group]


class Done(NamedTuple):
    """See the layout."""

    offsets: Ranges


class Return(NamedTuple):
    """See the layout."""

    ending: DeliveryEnd
    due_unix_ms: int
    offsets: Ranges


class Extend(NamedTuple):
    """See the layout."""

    due_unix_ms: int
    offsets: Ranges


class Spared(NamedTuple):
    """See the layout."""

    spared: int
    offsets: Ranges


class Move(NamedTuple):
    """A purge, a skip or a seek, as ``kind`` says."""

    kind: int
    offset: int


class Snapshot(NamedTuple):
    """See the layout."""

    next_offset: int
    early: Ranges
    leases: list[Lease]
    waiting: list[Waiting]


Change = Take | Done | Return | Extend | Move | Snapshot | Spared


def encode_take(
    *, is_held: bool, due_unix_ms: int, next_offset: int, groups: Sequence[bytes]
) -> bytes:
    """Return a change of kind take. ``groups`` are encoded."""
    head = _TAKE.pack(KIND_TAKE, is_held, due_unix_ms, next_offset, len(groups))
    return head + b"".join(groups)


def encode_done(offsets: Sequence[int]) -> bytes:
    """Return a change of kind done."""
    return _DONE_KIND + encode_offsets(offsets)


def encode_done_ranges(ranges: Sequence[range]) -> bytes:
    """Return a change of kind done. The ranges are distinct, in any order."""
    return _DONE_KIND + _encode_distinct(ranges)


def encode_contiguous_take(takes: Sequence[ContiguousTake]) -> bytes:
    """Return a change of kind take, of takes that are alike but for their messages."""
    last = takes[-1]
    ranges = _encode_distinct([one.offsets for one in takes])
    group = _GROUP.pack(1, last.now_unix_ms, _NO_KEY) + ranges
    return encode_take(
        is_held=last.is_held,
        due_unix_ms=last.due_unix_ms,
        next_offset=last.next_offset,
        groups=(group,),
    )


def entry_of(effects: Effects) -> bytes | None:
    """Return all that a call's effects have for the journal as one entry, None without any."""
    parts = [] if effects.journal is None else [effects.journal]
    if effects.taken is not None:
        parts.append(encode_contiguous_take((effects.taken,)))
    if effects.done:
        parts.append(encode_done_ranges(effects.done))
    return b"".join(parts) if parts else None


def encode_return(offsets: Sequence[int], due_unix_ms: int, ending: DeliveryEnd) -> bytes:
    """Return a change of kind return."""
    return _RETURN.pack(KIND_RETURN, ending.value, due_unix_ms) + encode_offsets(offsets)


def encode_spared(spared: int, offsets: Sequence[int]) -> bytes:
    """Return a change of kind spared."""
    return _SPARED.pack(KIND_SPARED, spared) + encode_offsets(offsets)


def encode_extend(offsets: Sequence[int], due_unix_ms: int) -> bytes:
    """Return a change of kind extend."""
    return _TIMED.pack(KIND_EXTEND, due_unix_ms) + encode_offsets(offsets)


def encode_move(kind: int, offset: int) -> bytes:
    """Return a change of kind purge, skip or seek."""
    return _TIMED.pack(kind, offset)


def encode_group(
    attempts: int, first_taken_unix_ms: int, key: bytes | None, offsets: Sequence[int]
) -> bytes:
    """Return a group, as a take and a snapshot have it."""
    if key is None:
        head = _GROUP.pack(attempts, first_taken_unix_ms, _NO_KEY)
    else:
        head = _GROUP.pack(attempts, first_taken_unix_ms, len(key)) + key
    return head + encode_offsets(offsets)


def encode_lease(group: bytes, due_unix_ms: int, *, is_held: bool) -> bytes:
    """Return a lease of a snapshot."""
    return _LEASE.pack(is_held, due_unix_ms) + group


def encode_waiting(group: bytes, due_unix_ms: int) -> bytes:
    """Return what was given back, for a snapshot."""
    return _NUMBER.pack(due_unix_ms) + group


def encode_snapshot(
    next_offset: int,
    early: Iterable[tuple[int, int]],
    leases: Sequence[bytes],
    waiting: Sequence[bytes],
) -> bytes:
    """Return a change of kind snapshot. Leases and what waits are encoded."""
    return b"".join(
        (
            _TIMED.pack(KIND_SNAPSHOT, next_offset),
            _encode_ranges(early),
            _COUNT.pack(len(leases)),
            *leases,
            _COUNT.pack(len(waiting)),
            *waiting,
        )
    )


def encode_offsets(offsets: Sequence[int]) -> bytes:
    """Return ranges. The offsets are distinct, in any order."""
    if not isinstance(offsets, range):
        offsets = sorted(offsets)
    if not offsets:
        return _COUNT.pack(0)
    first = offsets[0]
    if offsets[-1] - first + 1 == len(offsets):
        return _ONE_RANGE.pack(1, first, len(offsets))
    ranges: list[tuple[int, int]] = []
    last = first
    for offset in offsets:
        if offset > last + 1:
            ranges.append((first, last))
            first = offset
        last = offset
    ranges.append((first, last))
    return _encode_ranges(ranges)


def _encode_distinct(ranges: Sequence[range]) -> bytes:
    """Return ranges in order, with those joined that touch."""
    if len(ranges) == 1 and len(ranges[0]) <= MESSAGES_MAX:
        return _ONE_RANGE.pack(1, ranges[0].start, len(ranges[0]))
    joined: list[tuple[int, int]] = []
    for first, last in sorted([(one[0], one[-1]) for one in ranges]):
        if joined and joined[-1][1] + 1 == first:
            first = joined.pop()[0]  # noqa: PLW2901 - the same range goes on
        joined.append((first, last))
    return _encode_ranges(joined)


def _encode_ranges(ranges: Iterable[tuple[int, int]]) -> bytes:
    parts: list[bytes] = []
    for first, last in ranges:
        size = last - first + 1
        while size > MESSAGES_MAX:
            parts.append(_RANGE.pack(first, MESSAGES_MAX))
            first += MESSAGES_MAX  # noqa: PLW2901 - the rest of the same range
            size -= MESSAGES_MAX
        parts.append(_RANGE.pack(first, size))
    return _COUNT.pack(len(parts)) + b"".join(parts)


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
            _, flags, due_unix_ms, next_offset, count = self._unpack(_TAKE)
            groups = [self._read_group() for _ in range(self._check(count))]
            return Take(bool(flags), due_unix_ms, next_offset, groups)
        if kind == KIND_DONE:
            self.at += 1
            return Done(self._read_offsets())
        if kind == KIND_RETURN:
            _, flags, due_unix_ms = self._unpack(_RETURN)
            if flags not in _ENDINGS:
                raise CorruptBatch(f"a return with the flags {flags}")
            return Return(_ENDINGS[flags], due_unix_ms, self._read_offsets())
        if kind == KIND_SPARED:
            _, spared = self._unpack(_SPARED)
            return Spared(spared, self._read_offsets())
        if KIND_EXTEND <= kind <= KIND_SNAPSHOT:
            return self._read_timed()
        raise CorruptBatch(f"no change of a queue is of kind {kind}")

    def _read_timed(self) -> Change:
        kind, number = self._unpack(_TIMED)
        if kind == KIND_EXTEND:
            return Extend(number, self._read_offsets())
        if number < 0:
            raise CorruptBatch("an offset is negative")
        if kind != KIND_SNAPSHOT:
            return Move(kind, number)
        early = self._read_ranges()
        leases: list[Lease] = []
        for _ in range(self._read_count()):
            flags, due_unix_ms = self._unpack(_LEASE)
            leases.append(Lease(bool(flags), due_unix_ms, self._read_group()))
        waiting: list[Waiting] = []
        for _ in range(self._read_count()):
            (due_unix_ms,) = self._unpack(_NUMBER)
            waiting.append(Waiting(due_unix_ms, self._read_group()))
        return Snapshot(number, early, leases, waiting)

    def _read_group(self) -> Group:
        attempts, first_taken_unix_ms, key_bytes = self._unpack(_GROUP)
        key: bytes | None = None
        if key_bytes != _NO_KEY:
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
            first, count = self._unpack(_RANGE)
            if first < end or not 0 < count <= MESSAGES_MAX:
                raise CorruptBatch("offsets are not in order")
            end = first + count
            ranges.append(range(first, end))
        return ranges

    def _read_count(self) -> int:
        (count,) = self._unpack(_COUNT)
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
