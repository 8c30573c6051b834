"""Runs of records to be appended together, and the run whose records differ in value only."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from gateway.records.runs import encode_records, nullable, pieces_of, varint

RECORD_OVERHEAD_BYTES: Final = 32  # lengths, deltas and attributes of a record at most


class Run(Protocol):
    """Port of records to be appended together to one partition, in any of their forms.

    ``base_offset`` is that of the first record, -1 until the coalescer has appended the run; the
    others follow without a gap. ``key`` is None when a record has none. ``native`` is the run in
    its protocol's own form, which live readers of that protocol get beside the batch.
    ``size_bytes`` is at least what the records take in a batch.
    """

    base_offset: int
    native: object | None
    size_bytes: int
    timestamp_unix_ms: int

    @property
    def deliver_at_unix_ms(self) -> int | None:
        """Time to which the records wait, in a topic of any settings; None: as headers say."""

    @property
    def key(self) -> bytes | None:
        """The key of all records, or any bytes where each has one of its own."""

    @property
    def values(self) -> Sequence[bytes | None]:
        """The values, one for each record."""

    @property
    def largest_bytes(self) -> int:
        """Upper bound on the size of the largest record in bytes."""

    def pieces(self, *, records_max: int, bytes_max: int) -> "Iterable[Run]":
        """Return pieces of the run, without native forms: within the bounds, or of one record."""

    def encoded(self, lead: bytes, first_delta: int) -> Iterable[bytes | bytearray]:
        """Return the encoded records as parts to be joined; see ``runs.encode_records``."""

    def with_one_key(self) -> "RecordRun | None":
        """Return the run when its records have a common key and headers, else None."""


class RecordRun:
    """Records to be appended that differ in their value only.

    ``headers`` are encoded (``encode_headers``). ``native`` is the run in its protocol's own form,
    which live readers of that protocol get beside the batch. ``size_bytes`` is at least what the
    records take in a batch. ``base_offset`` is that of the first record, the others follow
    without a gap; it is -1 until the coalescer has appended the run. A run is appended once.
    With ``deliver_at_unix_ms`` its records wait until then, and have no offset before.
    ``shown`` is for queues, see ``gateway.queues.shown_forms.ShownRun``; it may be set later.
    """

    __slots__ = (
        "base_offset",
        "deliver_at_unix_ms",
        "headers",
        "key",
        "native",
        "shown",
        "size_bytes",
        "timestamp_unix_ms",
        "value_bytes",
        "values",
    )

    def __init__(
        self,
        key: bytes | None,
        values: Sequence[bytes | None],
        headers: bytes,
        timestamp_unix_ms: int,
        native: object | None = None,
    ) -> None:
        self.key = key
        self.values = values
        self.headers = headers
        self.timestamp_unix_ms = timestamp_unix_ms
        self.native = native
        self.shown: object | None = None
        self.deliver_at_unix_ms: int | None = None
        self.base_offset = -1
        count = len(values)
        if count == 1 and (value := values[0]) is not None:
            self.value_bytes = size_bytes = len(value)
            key_bytes = 0 if key is None else len(key)
            self.size_bytes = RECORD_OVERHEAD_BYTES + key_bytes + len(headers) + size_bytes
        else:
            self.value_bytes, size_bytes = _sizes(values)
            self.size_bytes = self.fixed_bytes * count + size_bytes

    @property
    def fixed_bytes(self) -> int:
        """Largest size of a record in bytes, without its value."""
        return RECORD_OVERHEAD_BYTES + len(self.key or b"") + len(self.headers)

    @property
    def largest_bytes(self) -> int:
        """Upper bound on the size of the largest record in bytes."""
        return self.fixed_bytes + max(len(value or b"") for value in self.values)

    def pieces(self, *, records_max: int, bytes_max: int) -> "Iterator[RecordRun]":
        """See ``Run``."""
        for start in range(0, len(self.values), records_max):
            piece = self.part(start, start + records_max)
            if piece.size_bytes <= bytes_max:
                yield piece
                continue
            sizes = [piece.fixed_bytes + len(value or b"") for value in piece.values]
            for place in pieces_of(sizes, records_max=records_max, bytes_max=bytes_max):
                yield piece.part(place.start, place.stop)

    def encoded(self, lead: bytes, first_delta: int) -> Sequence[bytes | bytearray]:
        """See ``Run``."""
        key, headers, values = nullable(self.key), self.headers, self.values
        if len(values) == 1:
            record = b"".join((lead, varint(first_delta), key, nullable(values[0]), headers))
            return varint(len(record)), record
        return encode_records(values, self.value_bytes, lead, key, headers, first_delta)

    def with_one_key(self) -> "RecordRun":
        """See ``Run``."""
        return self

    def part(self, start: int, stop: int) -> "RecordRun":
        """Return the records from index ``start`` to before ``stop``, without a native form."""
        return RecordRun(
            self.key, self.values[start:stop], self.headers, self.timestamp_unix_ms
        )


def _sizes(values: Sequence[bytes | None]) -> tuple[int, int]:
    """Return the common size of all values, or -1 without one, and the sum of sizes."""
    try:
        sizes = list(map(len, values))  # type: ignore[arg-type]  # a null is what the except is for
    except TypeError:
        return -1, sum(len(value) for value in values if value is not None)
    is_uniform = sizes.count(sizes[0]) == len(sizes)
    return sizes[0] if is_uniform else -1, sum(sizes)
