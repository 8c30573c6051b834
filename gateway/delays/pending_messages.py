"""Delayed messages on their way into the log, appended together with others of their caller.

Consecutive messages due in the same millisecond become a run: one entry that holds the batch in
which they will be delivered, complete except for the fields known only then.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from features.delay.entries import RUN, encode_waiting
from features.delay.message_locations import BLOCK_COUNT
from features.delay.runs import RUN_COUNT_MIN, start_of_run
from gateway.coalescer import Part
from gateway.delays.batches import (
    RecordBody,
    add_header,
    encode_bodies,
    has_header,
    split_bodies,
)
from gateway.errors import GatewayError
from gateway.model import DELIVER_AT, MESSAGE_ID
from gateway.partition import Partition, Write
from gateway.records.message_ids import message_ids
from gateway.records.runs import nullable, varint

_DELIVER_AT: Final = nullable(DELIVER_AT.encode())
_MESSAGE_ID: Final = nullable(MESSAGE_ID.encode())
_ID_BYTES: Final = 36

# One entry: due time, number (of the first message), number of messages if it is a run, else 0,
# and the encoded entry.
PendingEntry = tuple[int, int, int, bytes]

OnKept = Callable[["PendingMessages", int, GatewayError | None], None]
"""Called with the messages, the base offset of their entries, and the error."""


class PendingMessage(NamedTuple):
    """A message to be delayed. ``key_value`` and ``headers`` are encoded as in a v2 batch."""

    due_unix_ms: int
    timestamp_unix_ms: int
    key_value: bytes
    headers: bytes


class PendingMessages:
    """Delayed messages that the caller appends together with others.

    They go as ``part`` through a coalescer, or as ``writes``. Call ``done`` once: with the
    outcome of the append, or with the error that prevented it.
    """

    __slots__ = ("_on_kept", "count", "part", "rows", "size_bytes", "topic_uuid", "writes")

    def __init__(
        self, on_kept: OnKept, topic_uuid: bytes, rows: Sequence[PendingEntry]
    ) -> None:
        self._on_kept = on_kept
        self.topic_uuid = topic_uuid
        self.rows = rows
        self.count = sum([run_count or 1 for _, _, run_count, _ in rows])
        self.size_bytes = sum([len(value) for *_, value in rows])
        self.part: Part | None = None
        self.writes: list[Write] = []

    @property
    def numbers(self) -> list[int]:
        """Numbers of the messages, by which they can be cancelled."""
        return [
            number for _, first, run_count, _ in self.rows
            for number in range(first, first + (run_count or 1))
        ]  # fmt: skip

    @property
    def values(self) -> list[bytes]:
        """Encoded entries."""
        return [value for *_, value in self.rows]

    def done(self, error: GatewayError | None) -> None:
        """Report that the messages are durable, or the error."""
        if self.part is not None:
            base_offset = self.part[1].base_offset
        else:
            base_offset = self.writes[0].base_offset
        self._on_kept(self, base_offset, error)


def entries_of(
    partition: Partition, messages: Sequence[PendingMessage], last_number: int
) -> Iterator[PendingEntry]:
    """Yield the entries of messages by due time, with numbers above ``last_number``.

    Messages due at the same time keep their order.
    """
    messages = sorted(messages, key=itemgetter(0))
    start = 0  # of the messages due alone
    for at, end in _groups([message[0] for message in messages]):
        if end - at < RUN_COUNT_MIN:
            continue
        yield from _singles(partition, messages[start:at], last_number + 1)
        last_number += at - start
        for piece_at in range(at, end, BLOCK_COUNT):
            piece = messages[piece_at : min(piece_at + BLOCK_COUNT, end)]
            first = start_of_run(last_number, len(piece))
            yield from _runs(partition, piece, first)
            last_number = first + len(piece) - 1
        start = end
    yield from _singles(partition, messages[start:], last_number + 1)


def _groups(times: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the equal times in a sorted sequence."""
    start = 0
    while start < len(times):
        end = bisect_right(times, times[start], lo=start + 1)
        yield start, end
        start = end


def _runs(
    partition: Partition, messages: Sequence[PendingMessage], first: int
) -> Iterator[PendingEntry]:
    """Yield the run entries of messages due together."""
    topic = partition.topic
    due_unix_ms = messages[0].due_unix_ms
    bodies = _record_bodies(partition, messages, first)
    for piece in split_bodies(bodies, topic.settings.message_bytes_max):
        if len(piece) < RUN_COUNT_MIN:
            yield from _single_entries(partition, [due_unix_ms] * len(piece), piece, first)
        else:
            entry = encode_waiting(
                due_unix_ms,
                first,
                topic.uuid.bytes,
                partition.number,
                max([timestamp_unix_ms for timestamp_unix_ms, _ in piece]),
                encode_bodies(piece),
                kind=RUN,
            )
            yield due_unix_ms, first, len(piece), entry
        first += len(piece)


def _singles(
    partition: Partition, messages: Sequence[PendingMessage], first: int
) -> Iterator[PendingEntry]:
    times = [message[0] for message in messages]
    return _single_entries(partition, times, _record_bodies(partition, messages, first), first)


def _single_entries(
    partition: Partition, times: Sequence[int], bodies: Sequence[RecordBody], first: int
) -> Iterator[PendingEntry]:
    """Yield entries of one message each."""
    topic_uuid, partition_number = partition.topic.uuid.bytes, partition.number
    for number, due_unix_ms, (timestamp_unix_ms, tail) in zip(
        range(first, first + len(times)), times, bodies, strict=True
    ):
        entry = encode_waiting(
            due_unix_ms, number, topic_uuid, partition_number, timestamp_unix_ms, tail
        )
        yield due_unix_ms, number, 0, entry


def _record_bodies(
    partition: Partition, messages: Sequence[PendingMessage], first: int
) -> list[RecordBody]:
    """Return the records of messages, with headers for due time and message id."""
    ids = message_ids(partition.topic.uuid, partition.number)
    bodies = []
    known: tuple[bytes, int] | None = None
    front, has_id = b"", False
    for number, (due_unix_ms, timestamp, key_value, headers) in enumerate(messages, first):
        if known != (headers, due_unix_ms):  # mostly the same within a producer's batch
            known = headers, due_unix_ms
            front, has_id = _front(headers, due_unix_ms)
        if has_id:
            bodies.append((timestamp, key_value + front))
        else:  # no offset of a partition is as high as a number
            bodies.append((timestamp, key_value + front + ids.at(number).encode()))
    return bodies


def _front(headers: bytes, due_unix_ms: int) -> tuple[bytes, bool]:
    """Return headers with the due time, given or added, and whether they have a message id.

    Without an id, the value of the last header is still to be appended: the id.
    """
    if not has_header(headers, _DELIVER_AT):
        headers = add_header(headers, _DELIVER_AT + nullable(b"%d" % due_unix_ms))
    if has_header(headers, _MESSAGE_ID):
        return headers, True
    return add_header(headers, _MESSAGE_ID + varint(_ID_BYTES)), False
