"""Run of single records of many publishers, with different keys and headers.

Who waits for each acknowledgement brings one record at a time. What is the same from one record
of a publisher to its next is encoded once (``RecordFrame``), so a batch of such records costs a
tuple for each. ``gateway.coalescer`` takes these as it takes a ``RecordRun``.
"""

from collections.abc import Sequence
from typing import Final

from gateway.records.runs import SMALL, SMALL_MAX, pieces_of, varint

FRAME_OVERHEAD_BYTES: Final = 32  # as ``record_run.RECORD_OVERHEAD_BYTES``
_ONE_BYTE_END: Final = 1 << 6  # offset deltas below it take one byte
_NO_TIMESTAMP_DELTA: Final = b"\x00\x00"  # and the attributes, of which none is defined


class RecordFrame:
    """Record without offset and value: the common part of a publisher's records of one size.

    ``size_bytes`` is at least what such a record takes in a batch. ``front`` is all that stands
    before an offset delta of one byte, ``front_2`` before one of two; ``middle`` stands between
    the delta and the value.
    """

    __slots__ = ("front", "front_2", "headers", "middle", "size_bytes")

    def __init__(self, key: bytes, headers: bytes, value_bytes: int) -> None:
        """``headers`` are encoded, see ``records.encode_headers``."""
        self.headers = headers
        self.middle = varint(len(key)) + key + varint(value_bytes)
        rest_bytes = len(self.middle) + value_bytes + len(headers)
        self.front = varint(3 + rest_bytes) + _NO_TIMESTAMP_DELTA
        self.front_2 = varint(4 + rest_bytes) + _NO_TIMESTAMP_DELTA
        self.size_bytes = FRAME_OVERHEAD_BYTES + len(key) + value_bytes + len(headers)


class SingleRecords:
    """Run of one record of each of many publishers, for one partition.

    The names are those of ``record_run.RecordRun``. None is without a key or a value.
    """

    __slots__ = (
        "base_offset",
        "frames",
        "key",
        "native",
        "size_bytes",
        "timestamp_unix_ms",
        "values",
    )

    deliver_at_unix_ms: int | None = None

    def __init__(
        self,
        frames: Sequence[RecordFrame],
        values: Sequence[bytes],
        timestamp_unix_ms: int,
        native: object | None = None,
    ) -> None:
        self.frames = frames
        self.values = values
        self.timestamp_unix_ms = timestamp_unix_ms
        self.native = native
        self.key = b""  # "there are keys": what a compacted topic asks for
        self.base_offset = -1
        self.size_bytes = sum([frame.size_bytes for frame in frames])

    @property
    def largest_bytes(self) -> int:
        """Upper bound on the size of the largest record in bytes."""
        return max(frame.size_bytes for frame in self.frames)

    def pieces(self, *, records_max: int, bytes_max: int) -> "list[SingleRecords]":
        """Return pieces of the run, without native forms: within the bounds, or of one record."""
        sizes = [frame.size_bytes for frame in self.frames]
        return [
            SingleRecords(self.frames[piece], self.values[piece], self.timestamp_unix_ms)
            for piece in pieces_of(sizes, records_max=records_max, bytes_max=bytes_max)
        ]

    def with_one_key(self) -> None:
        """See ``record_run.Run``."""

    def encoded(self, lead: bytes, first_delta: int) -> list[bytes]:
        """Return the encoded records as parts to be joined; see ``runs.encode_records``."""
        parts: list[bytes] = []
        values, frames = self.values, self.frames
        end_delta = first_delta + len(values)
        if lead != _NO_TIMESTAMP_DELTA or end_delta > SMALL_MAX:
            for number, frame, value in zip(
                range(first_delta, end_delta), frames, values, strict=True
            ):
                record = b"".join((lead, varint(number), frame.middle, value, frame.headers))
                parts += (varint(len(record)), record)
            return parts
        one_byte = max(0, min(len(values), _ONE_BYTE_END - first_delta))
        fronts = [frame.front for frame in frames[:one_byte]]
        fronts += [frame.front_2 for frame in frames[one_byte:]]
        parts = [b""] * (5 * len(values))
        parts[0::5] = fronts
        parts[1::5] = SMALL[first_delta:end_delta]
        parts[2::5] = [frame.middle for frame in frames]
        parts[3::5] = values
        parts[4::5] = [frame.headers for frame in frames]
        return parts
