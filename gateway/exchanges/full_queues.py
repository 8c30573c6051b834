"""Targets of a publish that refuse it, because their queues are full (``reject-publish``)."""

from collections.abc import Sequence
from functools import partial

from gateway.append_limits import AppendLimit, AppendLimits
from gateway.errors import PublishRefused, StorageUnavailable
from gateway.model import Headers
from gateway.records.record_run import RecordRun
from gateway.slots import partition_for_key
from gateway.storage import OnDone
from gateway.topics.manager import Topic


def limit_of(limits: AppendLimits, topic: Topic, key: bytes | None) -> AppendLimit | None:
    """Return the limit of the partition to which messages with a key go in a topic, if any."""
    ids = topic.partition_ids
    return limits.get(ids[0 if key is None else partition_for_key(key, len(ids))])


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


def refused(on_done: OnDone) -> OnDone:
    """Return the callback of an append to the other targets of messages that one has refused."""
    return partial(_refuse, on_done)


def _refuse(on_done: OnDone, error: StorageUnavailable | None) -> None:
    on_done(error or PublishRefused("a queue is full and has not taken the messages"))
