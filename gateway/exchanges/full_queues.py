"""Targets of a publish that do not take it, because they are full; others get the message.

A queue may refuse it by its own limit (``reject-publish``), and a topic by the bytes that its
queues hold, for example because receivers of a queue in memory settle nothing.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from gateway.append_limits import AppendLimit, AppendLimits
from gateway.broker import Broker
from gateway.errors import Overloaded, PolicyViolation, PublishRefused, StorageUnavailable
from gateway.exchanges.plans import number_of
from gateway.model import Headers
from gateway.partition import Partition
from gateway.records.record_run import RecordRun
from gateway.storage import OnDone
from gateway.topics.manager import Topic


def limit_of(limits: AppendLimits, topic: Topic, key: bytes | None) -> AppendLimit | None:
    """Return the limit of the partition to which messages with a key go in a topic, if any."""
    return limits.get(topic.partition_ids[number_of(topic, key)])


def alike_count(limits: AppendLimits, topics: Sequence[Topic], run: RecordRun) -> int:
    """Return how many of the first messages of a run all go to the same of the topics."""
    found = (limit_of(limits, topic, run.key) for topic in topics)
    counts = [limit.alike_count(run) for limit in found if limit is not None]
    return min(counts, default=len(run.values))


def taking(
    limits: AppendLimits, topics: Sequence[Topic], run: RecordRun, headers: Headers
) -> list[Topic]:
    """Return the topics that take a run; the others have refused it.

    ``headers``: those of the run, not encoded.
    """
    found: list[Topic] = []
    for topic in topics:
        limit = limit_of(limits, topic, run.key)
        if limit is None or limit.room_for(run) > 0:
            found.append(topic)
        else:
            limit.refuse(run, headers)
    return found


class HeldTargets(NamedTuple):
    """Topics of a publish, and the partitions that have no room for it."""

    topics: list[Topic]
    full: list[Partition]

    def overflow(self, broker: Broker, run: RecordRun, headers: Headers) -> list[bool]:
        """Note what the full partitions do not take; return of each whether it refuses that.

        Queues that drop their oldest messages drop it. ``headers``: those of the run, not encoded.
        """
        return [broker.memory.overflow(one, run, headers) for one in self.full]


def with_room(broker: Broker, topics: Sequence[Topic], run: RecordRun) -> HeldTargets:
    """Return the topics whose holders leave room for a run, and the partitions of the others."""
    found = HeldTargets([], [])
    for topic in topics:
        number = number_of(topic, run.key)
        if not broker.owns(topic, number):
            found.topics.append(topic)
            continue
        partition = broker.partition(topic, number)
        try:
            broker.check_held(partition, run.size_bytes)
        except (Overloaded, PolicyViolation):
            found.full.append(partition)
        else:
            found.topics.append(topic)
    return found


def refused(on_done: OnDone) -> OnDone:
    """Return the callback of an append to the other targets of messages that one has refused."""
    return partial(_refuse, (True,), on_done)


def refused_if(refusals: Sequence[bool], on_done: OnDone) -> OnDone:
    """Return the callback of an append, for whose other targets ``refusals`` says it by then."""
    return partial(_refuse, refusals, on_done)


def _refuse(
    refusals: Sequence[bool], on_done: OnDone, error: StorageUnavailable | None
) -> None:
    if error is None and any(refusals):
        error = PublishRefused("a queue is full and has not taken the messages")
    on_done(error)
