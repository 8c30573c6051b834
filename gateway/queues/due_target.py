"""Destination of messages that waited at a delayed exchange: see ``exchange_delays``."""

import structlog

from features.queue.model import Dead
from features.routing.waiting import headers_when_due, parse_waiting
from gateway.errors import StorageUnavailable
from gateway.model import DELIVER_AT, Record
from gateway.queues.dead_letter_targets import DeadLetterRoutes, partition_of, with_key
from gateway.queues.lanes import QueueContext, QueueLane
from gateway.records.codec import encode_headers
from gateway.records.record_run import RecordRun
from gateway.transfer.payload import Addressed

_log = structlog.get_logger()


class DueTarget:
    """Topics of a message that waited, by the bindings of now: see ``DeadLetterTarget``."""

    def __init__(self, context: QueueContext, routes: DeadLetterRoutes | None) -> None:
        self._context = context
        self._routes = routes

    def addressed(
        self, lane: QueueLane, dead: Dead, body: Record, *, left_out: str = ""
    ) -> list[Addressed]:
        """Return the message for each topic; none for one that does not say where it waited."""
        if self._routes is None:
            raise StorageUnavailable("exchanges are being loaded")
        waiting = parse_waiting(body.headers)
        if waiting is None or left_out:
            _log.warning("a delayed message is dropped", reason=left_out or "no exchange")
            return []
        topics = self._routes.due_topics(waiting)
        if body.key is None and any(topic.settings.compacts for topic in topics):
            body = with_key(lane, dead, body)
        headers = headers_when_due(body.headers, [DELIVER_AT])
        now_unix_ms = self._context.clock.unix_ms()
        run = RecordRun(body.key, (body.value,), encode_headers(headers), now_unix_ms)
        found = [Addressed(topic, partition_of(topic, run.key), run) for topic in topics]
        for one in found:
            self._context.transfers.check(one, self._context.messages)
        return found
