"""Index of a segment that has no footer yet."""

from array import array

from gateway.model import PartitionIdentity
from storage_adapters.formats.bodies import Introduction, encode_introduction
from storage_adapters.formats.footer import (
    HIGH_SHIFT,
    LOW_32,
    NO_EPOCH,
    NO_TIMESTAMP,
    ROW_STRIDE,
    FooterPart,
    Part,
    Rows,
)


class LivePart:
    """Index of one partition in a live segment. ``rows``: four integers a batch."""

    __slots__ = (
        "end",
        "identity",
        "is_deleted",
        "max_timestamp_unix_ms",
        "partition_id",
        "rows",
        "size_bytes",
        "start",
    )

    def __init__(
        self, partition_id: int, start: int, end: int, identity: PartitionIdentity | None
    ) -> None:
        self.partition_id = partition_id
        self.start = start
        self.end = end
        self.identity = identity
        self.is_deleted = False
        self.max_timestamp_unix_ms = NO_TIMESTAMP
        self.size_bytes = 0
        self.rows = array("q")

    def add(self, base_offset: int, timestamp_unix_ms: int, place: int, span: int) -> None:
        """Add a batch: ``place`` = position + size << 32, ``span`` = count + epoch << 32."""
        if timestamp_unix_ms > self.max_timestamp_unix_ms:  # noqa: PLR1730  # Half of max().
            self.max_timestamp_unix_ms = timestamp_unix_ms
        self.rows.extend((base_offset, self.max_timestamp_unix_ms, place, span))
        self.size_bytes += place >> HIGH_SHIFT
        self.end = base_offset + (span & LOW_32)

    def to_part(self) -> Part:
        """Return the row that this partition would have in a footer of its own."""
        rows = self.rows
        return Part(
            self.partition_id,
            0,
            len(rows) // ROW_STRIDE,
            self.start,
            self.end,
            rows[0] if rows else self.end,
            self.max_timestamp_unix_ms,
            self.size_bytes,
            rows[3] >> 32 if rows else NO_EPOCH,
            rows[-1] >> 32 if rows else NO_EPOCH,
            self.is_deleted,
            0,
        )

    def to_footer_part(self) -> FooterPart:
        """Return the partition's input of the footer, for closing the segment."""
        introduction = None
        if self.identity is not None:
            introduction = encode_introduction(
                Introduction(self.identity, self.start, self.end)
            )
        return FooterPart(
            self.partition_id,
            self.start,
            self.end,
            self.is_deleted,
            introduction,
            self.size_bytes,
            self.rows,
        )


class LiveIndex:
    """The partitions of a segment without a footer. ``repeated_bytes``: see ``Trailer``."""

    __slots__ = ("parts", "repeated_bytes")

    def __init__(self) -> None:
        self.parts: dict[int, LivePart] = {}
        self.repeated_bytes = 0

    def lookup(self, partition_id: int) -> tuple[Part, Rows] | None:
        """Return the partition's row, or None."""
        part = self.parts.get(partition_id)
        return None if part is None else (part.to_part(), part.rows)

    def clear(self) -> None:
        """Release the rows, since partitions may keep references to their parts."""
        for part in self.parts.values():
            part.rows = array("q")
        self.parts.clear()
