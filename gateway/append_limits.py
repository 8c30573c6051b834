"""Limits on appends to a partition: a full queue refuses its publishers.

``Broker.append_limits`` has them by partition id; almost always it is empty, which is all that an
append asks then. A limit is checked with everything else that may refuse records, by
``Writer.prepare`` and ``Coalescer.check``: records are refused when nothing more has room, and
taken as a whole otherwise.
"""

from collections.abc import Iterable
from functools import partial
from typing import Protocol

from gateway.errors import StorageUnavailable
from gateway.model import Headers
from gateway.open_round import TargetGroup
from gateway.partition import Partition
from gateway.records.record_run import RecordRun, Run
from gateway.storage import OnDone


class AppendLimit(Protocol):
    """Limit of one or several partitions; see ``gateway.queues.publish_limit``."""

    def check(self, size_bytes: int) -> None:
        """Raise ``QueueFull`` when a message of so many bytes has no room."""
        ...

    def room_for(self, run: RecordRun) -> int:
        """Return how many of the first records of a run have room; 0 when it is full."""
        ...

    def alike_count(self, run: RecordRun) -> int:
        """Return how many of the first records have room, or how many of them have none."""
        ...

    def reserve(self, run: Run) -> None:
        """Count a run that is about to be appended; ``release`` follows."""
        ...

    def release(self, run: Run) -> None:
        """Count a run no more: it is in the log, or was refused."""
        ...

    def refuse(self, run: RecordRun, headers: Headers) -> None:
        """Note that a publisher's records were refused; they may be dead letters. Must not raise.

        ``headers``: those of the run, not encoded.
        """
        ...


AppendLimits = dict[int, AppendLimit]


class JointLimit:
    """Limits of several queue groups on one partition: records need room in each of them."""

    __slots__ = ("members",)

    def __init__(self, members: tuple[AppendLimit, ...]) -> None:
        self.members = members

    def check(self, size_bytes: int) -> None:
        """See ``AppendLimit``."""
        for member in self.members:
            member.check(size_bytes)

    def room_for(self, run: RecordRun) -> int:
        """See ``AppendLimit``."""
        return min(member.room_for(run) for member in self.members)

    def alike_count(self, run: RecordRun) -> int:
        """See ``AppendLimit``."""
        return min(member.alike_count(run) for member in self.members)

    def reserve(self, run: Run) -> None:
        """See ``AppendLimit``."""
        for member in self.members:
            member.reserve(run)

    def release(self, run: Run) -> None:
        """See ``AppendLimit``."""
        for member in self.members:
            member.release(run)

    def refuse(self, run: RecordRun, headers: Headers) -> None:
        """See ``AppendLimit``: those that have no room note it."""
        for member in self.members:
            if member.room_for(run) <= 0:
                member.refuse(run, headers)


def add_limit(limits: AppendLimits, partition_id: int, added: AppendLimit) -> None:
    """Add a limit to those of a partition."""
    _set(limits, partition_id, (*_members(limits, partition_id), added))


def remove_limit(limits: AppendLimits, partition_id: int, removed: AppendLimit) -> None:
    """Remove a limit from those of a partition; the others hold on."""
    others = tuple(one for one in _members(limits, partition_id) if one is not removed)
    _set(limits, partition_id, others)


def _members(limits: AppendLimits, partition_id: int) -> tuple[AppendLimit, ...]:
    known = limits.get(partition_id)
    if isinstance(known, JointLimit):
        return known.members
    return () if known is None else (known,)


def _set(limits: AppendLimits, partition_id: int, members: tuple[AppendLimit, ...]) -> None:
    """Set the limits of a partition; runs that are reserved know those that they are counted by."""
    if not members:
        limits.pop(partition_id, None)
    else:
        limits[partition_id] = members[0] if len(members) == 1 else JointLimit(members)


def reserve(
    limits: AppendLimits, parts: Iterable[tuple[Partition | TargetGroup, Run]], on_done: OnDone
) -> OnDone:
    """Count runs that are about to be appended; return the callback of their append."""
    reserved: list[tuple[AppendLimit, Run]] = []
    for target, run in parts:
        members = target.partitions if isinstance(target, TargetGroup) else (target,)
        for member in members:
            limit = limits.get(member.partition_id)
            if limit is not None:
                limit.reserve(run)
                reserved.append((limit, run))
    return partial(_release, reserved, on_done) if reserved else on_done


def _release(
    reserved: list[tuple[AppendLimit, Run]], on_done: OnDone, error: StorageUnavailable | None
) -> None:
    for limit, run in reserved:
        limit.release(run)
    on_done(error)
