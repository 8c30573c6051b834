"""Layout of a lane's journal: the entries that rebuild it. What time alone changes is not written.

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

from struct import Struct
from typing import Final, NamedTuple

from features.queue.retrying import DeliveryEnd

MESSAGES_MAX: Final = 1 << 22
"""Limit of an entry's messages, and of one range handed out early; a larger count is garbage."""

TAKE_LAYOUT: Final = Struct(">BBqqI")
RETURN_LAYOUT: Final = Struct(">BBq")
TIMED_LAYOUT: Final = Struct(">Bq")
GROUP_LAYOUT: Final = Struct(">Iqi")
LEASE_LAYOUT: Final = Struct(">Bq")
COUNT_LAYOUT: Final = Struct(">I")
SPARED_LAYOUT: Final = Struct(">BI")
NUMBER_LAYOUT: Final = Struct(">q")
RANGE_LAYOUT: Final = Struct(">qI")
NO_KEY: Final = -1

KIND_TAKE: Final = 1
KIND_DONE: Final = 2
KIND_RETURN: Final = 3
KIND_EXTEND: Final = 4
KIND_PURGE: Final = 5
KIND_SKIP: Final = 6
KIND_SEEK: Final = 7
KIND_SNAPSHOT: Final = 8
KIND_SPARED: Final = 9

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
