"""Index in memory of the keys of batches that are not settled and indexed yet.

A stretch is some 256 KiB of batches of one partition, with a hash of 8 bytes for each key in
it: about as much as a search reads at once. Batches that do not fit ``bytes_max`` are
searched as a whole; so are those appended since the last update.
"""

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

STRETCH_BYTES: Final = 262_144  # of batches
_HASH_BYTES: Final = 8
_STRETCH_COST_BYTES: Final = 256
_HASHES_LOOKED_UP_MAX: Final = 64  # above it, all hashes of a stretch are compared: 30 ns each

Span = tuple[int, int]


class KeyedRange(NamedTuple):
    """Offsets [start, end), the size of their batches, and their keys' hashes, sorted.

    ``is_whole``: the keys of all batches could be decoded.
    """

    start: int
    end: int
    size_bytes: int
    hashes: "array[int]"
    is_whole: bool

    @property
    def cost_bytes(self) -> int:
        """Bytes of memory that it takes."""
        return _STRETCH_COST_BYTES + len(self.hashes) * _HASH_BYTES

    def may_hold(self, key_hashes: AbstractSet[int]) -> bool:
        """Return whether a key with one of those hashes may be among them."""
        if not self.is_whole:
            return True
        hashes = self.hashes
        if len(key_hashes) > _HASHES_LOOKED_UP_MAX:
            return not key_hashes.isdisjoint(hashes)
        for key_hash in key_hashes:
            index = bisect_left(hashes, key_hash)
            if index < len(hashes) and hashes[index] == key_hash:
                return True
        return False


class LiveKeys:
    """Stretches by partition. Changed on the loop by replacing values; read in any thread."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._stretches: dict[int, tuple[KeyedRange, ...]] = {}
        self.used_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the bound is reached: no more keys are added until some are forgotten."""
        return self.used_bytes >= self._bytes_max

    def end(self, partition_id: int) -> int:
        """Return the offset up to which a partition's keys are known; 0 without any."""
        stretches = self._stretches.get(partition_id)
        return stretches[-1].end if stretches else 0

    def add(
        self,
        partition_id: int,
        offsets: Span,
        size_bytes: int,
        key_hashes: Iterable[int],
        *,
        is_whole: bool = True,
    ) -> None:
        """Add the keys of ``offsets``, which come after those added before."""
        before = self._stretches.get(partition_id, ())
        start, end = offsets
        hashes = set(key_hashes)
        last = before[-1] if before else None
        if (
            last is not None
            and last.end == start
            and last.size_bytes + size_bytes <= STRETCH_BYTES
        ):
            before = before[:-1]
            start, size_bytes = last.start, size_bytes + last.size_bytes
            hashes.update(last.hashes)
            is_whole = is_whole and last.is_whole
            self.used_bytes -= last.cost_bytes
        made = KeyedRange(start, end, size_bytes, array("q", sorted(hashes)), is_whole)
        self.used_bytes += made.cost_bytes
        self._stretches[partition_id] = (*before, made)

    def forget_before(self, partition_id: int, offset: int) -> None:
        """Drop stretches that end at or before ``offset``, which are indexed or deleted."""
        stretches = self._stretches.pop(partition_id, ())
        kept = tuple(stretch for stretch in stretches if stretch.end > offset)
        gone = stretches[: len(stretches) - len(kept)]
        self.used_bytes -= sum(stretch.cost_bytes for stretch in gone)
        if kept:
            self._stretches[partition_id] = kept

    def keep_only(self, partition_ids: Collection[int]) -> None:
        """Drop all other partitions."""
        for partition_id in [known for known in self._stretches if known not in partition_ids]:
            self.forget_before(partition_id, self.end(partition_id))

    def spans(
        self, partition_id: int, key_hashes: AbstractSet[int], start: int, end: int
    ) -> Iterator[Span]:
        """Yield the ranges within [start, end) that may hold a key with one of the hashes.

        In order.
        """
        for stretch in self._stretches.get(partition_id, ()):
            if stretch.end <= start:
                continue
            if stretch.start >= end:
                break
            if start < stretch.start:
                yield start, stretch.start
                start = stretch.start
            upto = min(stretch.end, end)
            if stretch.may_hold(key_hashes):
                yield start, upto
            start = upto
        if start < end:
            yield start, end
