"""Run of records of one publisher with different keys and common headers.

Who publishes to many topics in turn brings no two records in a row with the same key. Lengths and
deltas are put between what the records have in columns, which runs at the speed of C.
"""

from collections.abc import Sequence

from gateway.records.runs import deltas, pieces_of, varints
from gateway.records.singles import FRAME_OVERHEAD_BYTES


class KeyedRecords:
    """Run of records with different keys for one partition.

    The names are those of ``record_run.RecordRun``; ``headers`` are encoded. None is without a key
    or a value.
    """

    __slots__ = (
        "base_offset",
        "headers",
        "key",
        "keys",
        "native",
        "size_bytes",
        "timestamp_unix_ms",
        "values",
    )

    deliver_at_unix_ms: int | None = None

    def __init__(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        headers: bytes,
        timestamp_unix_ms: int,
        native: object | None = None,
    ) -> None:
        self.keys = keys
        self.values = values
        self.headers = headers
        self.timestamp_unix_ms = timestamp_unix_ms
        self.native = native
        self.key = b""  # "there are keys": what a compacted topic asks for
        self.base_offset = -1
        fixed_bytes = FRAME_OVERHEAD_BYTES + len(headers)
        self.size_bytes = fixed_bytes * len(keys) + sum(map(len, keys)) + sum(map(len, values))

    @property
    def largest_bytes(self) -> int:
        """Upper bound on the size of the largest record in bytes."""
        return max(self._sizes())

    def _sizes(self) -> list[int]:
        fixed_bytes = FRAME_OVERHEAD_BYTES + len(self.headers)
        return [
            fixed_bytes + len(key) + len(value)
            for key, value in zip(self.keys, self.values, strict=True)
        ]

    def places(self, *, records_max: int, bytes_max: int) -> list[slice]:
        """Return the slices to cut it into: within the bounds, or of one record."""
        if len(self.values) <= records_max and self.size_bytes <= bytes_max:
            return [slice(0, len(self.values))]
        return pieces_of(self._sizes(), records_max=records_max, bytes_max=bytes_max)

    def pieces(self, *, records_max: int, bytes_max: int) -> "list[KeyedRecords]":
        """Return pieces of the run, without native forms: within the bounds, or of one record."""
        return [
            KeyedRecords(
                self.keys[place], self.values[place], self.headers, self.timestamp_unix_ms
            )
            for place in self.places(records_max=records_max, bytes_max=bytes_max)
        ]

    def with_one_key(self) -> None:
        """See ``record_run.Run``."""

    def encoded(self, lead: bytes, first_delta: int) -> list[bytes]:
        """Return the encoded records as parts to be joined; see ``runs.encode_records``."""
        keys, values, headers = self.keys, self.values, self.headers
        offset_deltas = deltas(first_delta, len(values))
        key_lengths = varints([len(key) for key in keys])
        lengths = varints([len(value) for value in values])
        fixed_bytes = len(lead) + len(headers)
        sizes = [
            fixed_bytes + len(delta) + len(key_length) + len(key) + len(length) + len(value)
            for delta, key_length, key, length, value in zip(
                offset_deltas, key_lengths, keys, lengths, values, strict=True
            )
        ]
        parts = [b"", lead, b"", b"", b"", b"", b"", headers] * len(values)
        parts[0::8] = varints(sizes)
        parts[2::8] = offset_deltas
        parts[3::8] = key_lengths
        parts[4::8] = keys
        parts[5::8] = lengths
        parts[6::8] = values
        return parts
