"""Messages that are to wait, on their way into the log beside others of their maker."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gateway.coalescer import Part
from gateway.errors import GatewayError
from gateway.partition import Partition, Write

OnKept = Callable[
    [bytes, Sequence[int], Sequence[int], Sequence[bytes], int, GatewayError | None], None
]
"""Called with topic uuid, due times, numbers, entries, their base offset, and the error."""


class Message(NamedTuple):
    """A message that is to wait. ``key_value`` and ``headers`` are as a v2 batch has them."""

    due_unix_ms: int
    timestamp_unix_ms: int
    key_value: bytes
    headers: bytes


class Draft:
    """Messages that are to wait, which their maker appends beside others of its own.

    Either as ``part`` of what goes through a coalescer, or as ``writes``. ``numbers`` are those
    by which the messages can be cancelled. ``done`` is to be called once: with the outcome of
    the append, or with the error for which there was none.
    """

    __slots__ = (
        "_due_unix_ms",
        "_on_kept",
        "_topic_uuid",
        "numbers",
        "part",
        "size_bytes",
        "values",
        "writes",
    )

    def __init__(
        self,
        on_kept: OnKept,
        partition: Partition,
        due_unix_ms: Sequence[int],
        entries: Sequence[tuple[int, bytes]],
    ) -> None:
        self._on_kept = on_kept
        self._topic_uuid = partition.topic.uuid.bytes
        self._due_unix_ms = due_unix_ms
        self.numbers = [number for number, _ in entries]
        self.values = [value for _, value in entries]
        self.size_bytes = sum(map(len, self.values))
        self.part: Part | None = None
        self.writes: list[Write] = []

    def done(self, error: GatewayError | None) -> None:
        """The messages are durable, or were not appended."""
        if self.part is not None:
            base_offset = self.part[1].base_offset
        else:
            base_offset = self.writes[0].base_offset
        self._on_kept(
            self._topic_uuid, self._due_unix_ms, self.numbers, self.values, base_offset, error
        )
