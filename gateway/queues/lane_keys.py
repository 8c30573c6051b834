"""Keys of messages in a lane: the record's key, or the priority where these make the order.

A priority is the header ``priority``, as decimal text; without one, or with another value, it is 0.
Its key in the lane is one byte, and none for priority 0, which most messages have.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from features.queue.model import Order, Run
from gateway.model import Headers, Record
from gateway.queues.model import QueueSettings
from gateway.records.codec import decode_headers
from gateway.records.record_run import RecordRun
from gateway.records.records_from_runs import keys_of_runs

PRIORITY: Final = "priority"
_PRIORITY_BYTES: Final = PRIORITY.encode()
_DIGITS_MAX: Final = 20


class LaneKeys:
    """Keys of records for a queue with an order. ``priority_max``: what is above counts as it."""

    def __init__(self, settings: QueueSettings) -> None:
        self.by_priority = settings.order is Order.PRIORITY
        self._priority_max = settings.priority_max

    def of_record(self, record: Record) -> bytes | None:
        """Return the key of a record."""
        return self._of_headers(record.headers) if self.by_priority else record.key

    def _of_headers(self, headers: Headers) -> bytes | None:
        for name, value in headers:
            if name == PRIORITY:
                return priority_key(value, self._priority_max)
        return None

    def runs_of(self, runs: Sequence[RecordRun], base_offset: int) -> Iterator[Run]:
        """Yield contiguous messages with a common key, of runs that a batch was encoded from."""
        if not self.by_priority:
            for one in keys_of_runs(runs, base_offset):
                yield Run(*one)
            return
        first = offset = base_offset
        key = block_key = None
        block: bytes | None = None
        for run in runs:
            if run.headers != block:
                block = run.headers
                block_key = None
                if _PRIORITY_BYTES in block:
                    block_key = self._of_headers(decode_headers(block, 0, len(block)))
            if block_key != key:
                if offset > first:
                    yield Run(first, offset - 1, key)
                first, key = offset, block_key
            offset += len(run.values)
        yield Run(first, offset - 1, key)


def priority_key(value: bytes | None, priority_max: int) -> bytes | None:
    r"""Return the key of a priority.

    >>> priority_key(b"3", 9), priority_key(b"200", 9), priority_key(b"0", 9)
    (b'\x03', b'\t', None)
    >>> priority_key(b"high", 9), priority_key(None, 9)
    (None, None)
    """
    if value is None or not value.isdigit() or len(value) > _DIGITS_MAX:
        return None
    level = min(int(value), priority_max)
    return bytes((level,)) if level else None
