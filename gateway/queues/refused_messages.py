"""Dead letters of messages that a full queue has refused (RabbitMQ's ``reject-publish-dlx``)."""

import uuid

import structlog

from features.queue.model import Dead
from gateway.errors import GatewayError, StorageUnavailable
from gateway.model import MESSAGE_ID, Headers, Record
from gateway.queues.lanes import QueueContext, QueueLane
from gateway.queues.length_limit import MAXLEN
from gateway.records.record_run import RecordRun
from gateway.transfer.payload import Addressed

_log = structlog.get_logger()


def bury_refused(
    context: QueueContext, lane: QueueLane, run: RecordRun, headers: Headers
) -> None:
    """Append refused messages of a lane to its dead letters, once.

    The publisher is told that they were refused, whatever becomes of that. They were never in the
    queue: the offset of their source is where they would have been. Without a dead letter that can
    be appended they are dropped, which is logged.
    """
    try:
        _bury(context, lane, run, headers)
    except GatewayError as error:
        queue = lane.partition.topic.name.name
        _log.warning("refused messages are dropped", queue=queue, error=str(error))


def _bury(context: QueueContext, lane: QueueLane, run: RecordRun, headers: Headers) -> None:
    target = context.mover.target(lane)
    if target is None:
        return
    dead = Dead(lane.partition.log_end_offset, 0, MAXLEN)
    has_id = any(name == MESSAGE_ID for name, _ in headers)
    addressed: list[Addressed] = []
    for value in run.values:
        own = headers if has_id else (*headers, (MESSAGE_ID, str(uuid.uuid4()).encode()))
        body = Record(dead.offset, run.timestamp_unix_ms, run.key, value, tuple(own))
        addressed += target.addressed(lane, dead, body)
    if addressed:
        context.transfers.append(
            lane.partition.shard, addressed, _note, coalescer=context.messages
        )
    lane.owner.counters.dead_lettered += len(run.values)


def _note(error: StorageUnavailable | None) -> None:
    if error is not None:
        _log.warning("refused messages are dropped", error=str(error))
