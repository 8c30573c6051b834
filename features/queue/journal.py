"""Encoded changes of a lane, for its journal; ``features.queue.journal_layout`` has the layout."""

from collections.abc import Iterable, Sequence
from struct import Struct
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
)
from features.queue.model import ContiguousTake, Effects
from features.queue.retrying import DeliveryEnd

_ONE_RANGE: Final = Struct(">IqI")
_DONE_KIND: Final = KIND_DONE.to_bytes()


def encode_take(
    *, is_held: bool, due_unix_ms: int, next_offset: int, groups: Sequence[bytes]
) -> bytes:
    """Return a change of kind take. ``groups`` are encoded."""
    head = TAKE_LAYOUT.pack(KIND_TAKE, is_held, due_unix_ms, next_offset, len(groups))
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
    group = GROUP_LAYOUT.pack(1, last.now_unix_ms, NO_KEY) + ranges
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
    return RETURN_LAYOUT.pack(KIND_RETURN, ending.value, due_unix_ms) + encode_offsets(offsets)


def encode_spared(spared: int, offsets: Sequence[int]) -> bytes:
    """Return a change of kind spared."""
    return SPARED_LAYOUT.pack(KIND_SPARED, spared) + encode_offsets(offsets)


def encode_extend(offsets: Sequence[int], due_unix_ms: int) -> bytes:
    """Return a change of kind extend."""
    return TIMED_LAYOUT.pack(KIND_EXTEND, due_unix_ms) + encode_offsets(offsets)


def encode_move(kind: int, offset: int) -> bytes:
    """Return a change of kind purge, skip or seek."""
    return TIMED_LAYOUT.pack(kind, offset)


def encode_group(
    attempts: int, first_taken_unix_ms: int, key: bytes | None, offsets: Sequence[int]
) -> bytes:
    """Return a group, as a take and a snapshot have it."""
    if key is None:
        head = GROUP_LAYOUT.pack(attempts, first_taken_unix_ms, NO_KEY)
    else:
        head = GROUP_LAYOUT.pack(attempts, first_taken_unix_ms, len(key)) + key
    return head + encode_offsets(offsets)


def encode_lease(group: bytes, due_unix_ms: int, *, is_held: bool) -> bytes:
    """Return a lease of a snapshot."""
    return LEASE_LAYOUT.pack(is_held, due_unix_ms) + group


def encode_waiting(group: bytes, due_unix_ms: int) -> bytes:
    """Return what was given back, for a snapshot."""
    return NUMBER_LAYOUT.pack(due_unix_ms) + group


def encode_snapshot(
    next_offset: int,
    early: Iterable[tuple[int, int]],
    leases: Sequence[bytes],
    waiting: Sequence[bytes],
) -> bytes:
    """Return a change of kind snapshot. Leases and what waits are encoded."""
    return b"".join(
        (
            TIMED_LAYOUT.pack(KIND_SNAPSHOT, next_offset),
            _encode_ranges(early),
            COUNT_LAYOUT.pack(len(leases)),
            *leases,
            COUNT_LAYOUT.pack(len(waiting)),
            *waiting,
        )
    )


def encode_offsets(offsets: Sequence[int]) -> bytes:
    """Return ranges. The offsets are distinct, in any order."""
    if not isinstance(offsets, range):
        offsets = sorted(offsets)
    if not offsets:
        return COUNT_LAYOUT.pack(0)
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
            parts.append(RANGE_LAYOUT.pack(first, MESSAGES_MAX))
            first += MESSAGES_MAX  # noqa: PLW2901 - the rest of the same range
            size -= MESSAGES_MAX
        parts.append(RANGE_LAYOUT.pack(first, size))
    return COUNT_LAYOUT.pack(len(parts)) + b"".join(parts)
