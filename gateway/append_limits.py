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
