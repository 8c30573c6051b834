"""Arrival of a message in its queue, from which its time to live counts."""

from gateway.model import DELIVER_AT, Record, unix_ms_in


def arrival_unix_ms(record: Record) -> int:
    """Return the unix ms at which a message came to its queue.

    That is its timestamp, which the node sets for all protocols but Kafka; a delayed message came
    when it was due.
    """
    arrived_unix_ms = record.timestamp_unix_ms
    for name, value in record.headers:
        if name == DELIVER_AT and (due_unix_ms := unix_ms_in(value)) is not None:
            arrived_unix_ms = max(arrived_unix_ms, due_unix_ms)
    return arrived_unix_ms
