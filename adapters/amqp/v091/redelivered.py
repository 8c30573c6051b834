"""Properties of messages that a quorum queue delivers again, with the counts of deliveries."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from adapters.amqp.queue_arguments import QUORUM, queue_type
from adapters.amqp.queues import Declaration
from adapters.amqp.retry_arguments import with_counts
from adapters.amqp.v091.properties import decode_properties, encode_properties
from gateway.queues.delivered_ranges import DeliveredRange
from gateway.queues.manager import Queue

_KEPT: Final = 64  # properties: mostly all messages of a range have the same


def counted(queue: Queue, one: DeliveredRange, properties: Sequence[bytes]) -> Sequence[bytes]:
    """Return properties as the queue shows them; those of a first delivery are unchanged."""
    if one.attempt == 1:
        return properties
    declaration = Declaration.of(queue)
    if declaration is None or queue_type(declaration.arguments) != QUORUM:
        return properties
    acquired_count = one.attempt - 1
    return [_with_counts(made, acquired_count, one.failed_count) for made in properties]


@lru_cache(maxsize=_KEPT)
def _with_counts(made: bytes, acquired_count: int, failed_count: int) -> bytes:
    properties = decode_properties(made)
    table = with_counts(properties.table, acquired_count, failed_count)
    return encode_properties(properties._replace(headers=table))
