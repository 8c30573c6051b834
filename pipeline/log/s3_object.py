"""Reading of one object's batches by few large GETs, one ahead of decoding."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from operator import itemgetter
from typing import Final, Protocol

from gateway.errors import StorageUnavailable
from pipeline.log.views import Extent
from storage_adapters.formats.damage import Damaged
from storage_adapters.formats.footer import (
    LOW_32,
    ROW_STRIDE,
    TRAILER_BYTES,
    Footer,
    decode_trailer,
)
from storage_adapters.formats.row_search import find_offset

GET_BYTES_MAX: Final = 8 * 1024 * 1024  # of one GET, except for a larger batch
TAIL_BYTES: Final = 128 * 1024  # of the first GET: the footer of 4,000 batches
GAP_BYTES_MAX: Final = 256 * 1024  # read and dropped, which takes less than another GET
_WHOLE_SHARE: Final = (
    4  # an object is read whole if a fourth of it is wanted and one GET holds it
)

Span = tuple[int, int]  # bytes [start, end) of an object
_POSITION_BITS: Final = 32


class Buffer(Protocol):
    """Port of reads from a bucket (``storage_adapters.s3.bucket.Bucket``)."""

    def get(self, key: str, start: int, end: int) -> bytes:
        """Return bytes [``start``, ``end``)."""
        ...


class Recent:
    """Bucket that caches an object which is opened repeatedly, for one partition each.

    The first time it reads the wanted range only; the second time the whole object, if one GET
    holds it. Objects never change. One thread opens, and others may read ahead.
    """

    def __init__(self, bucket: Buffer) -> None:
        self._bucket = bucket
        self._key = ""
        self._whole = b""

    def open(self, key: str, size_bytes: int) -> None:
        """Prepare reads of a key. Errors: ``ObjectMissing``, ``StorageUnavailable``."""
        if key != self._key:
            self._key, self._whole = key, b""
        elif not self._whole and size_bytes <= GET_BYTES_MAX:
            self._whole = self._bucket.get(key, 0, size_bytes)

    def get(self, key: str, start: int, end: int) -> bytes:
        """See ``Bytes``."""
        whole = self._whole
        if key == self._key and whole:
            return whole[start:end]
        return self._bucket.get(key, start, end)


class ObjectReader:
    """See ``ExtentReader``. ``extents``: those to be read, in about this order."""

    def __init__(self, bucket: Buffer, path: str, key: str, extents: Sequence[Extent]) -> None:
        self._bucket = bucket
        self._path = path
        self._key = key
        self._size_bytes = extents[0].file_bytes
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="read-ahead")
        self._coming: dict[Span, Future[bytes]] = {}
        wanted_bytes = sum([extent.size_bytes for extent in extents])
        is_whole = self._size_bytes <= max(
            TAIL_BYTES, min(GET_BYTES_MAX, wanted_bytes * _WHOLE_SHARE)
        )
        tail_at = 0 if is_whole else max(0, self._size_bytes - TAIL_BYTES)
        tail = memoryview(bucket.get(key, tail_at, self._size_bytes))
        self._held: tuple[Span, memoryview] = ((tail_at, self._size_bytes), tail)
        self._footer = self._read_footer(tail, tail_at)
        self._spans = [] if is_whole else self._planned(extents)

    def close(self) -> None:
        """Drop the GETs under way."""
        self._ahead.shutdown(wait=False, cancel_futures=True)

    def batches(self, extent: Extent) -> Iterator[tuple[int, memoryview]]:
        """See ``ExtentReader``. Errors: ``ObjectMissing``, ``StorageUnavailable``."""
        for base_offset, (start, end) in self._places(extent):
            yield base_offset, self._data(start, end)

    def _places(self, extent: Extent) -> Iterator[tuple[int, Span]]:
        part = self._footer.find(extent.partition_id)
        if part is None:
            raise self._damaged(f"partition {extent.partition_id} is not in its footer")
        rows = self._footer.rows
        end_row = part.first_row + part.row_count
        row = find_offset(rows, part.first_row, end_row, extent.first)
        while row < end_row and rows[row * ROW_STRIDE] < extent.end:
            place = rows[row * ROW_STRIDE + 2]
            position = place & LOW_32
            yield rows[row * ROW_STRIDE], (position, position + (place >> _POSITION_BITS))
            row += 1

    def _planned(self, extents: Sequence[Extent]) -> list[Span]:
        """Return the ranges of GETs; batches near each other share one."""
        spans: list[Span] = []
        for start, end in sorted({span for one in extents for _, span in self._places(one)}):
            if spans:
                first, last = spans[-1]
                if start - last <= GAP_BYTES_MAX and end - first <= GET_BYTES_MAX:
                    spans[-1] = (first, max(last, end))
                    continue
            spans.append((start, end))
        return spans

    def _data(self, start: int, end: int) -> memoryview:
        (held_start, held_end), data = self._held
        if not held_start <= start <= end <= held_end:
            held_start, data = self._fetched(start, end)
        return data[start - held_start : end - held_start]

    def _fetched(self, start: int, end: int) -> tuple[int, memoryview]:
        """Return bytes that hold a batch, and their position; request the next range."""
        index = bisect_right(self._spans, start, key=itemgetter(0)) - 1
        span = self._spans[index] if index >= 0 else (start, end)
        if end > span[1]:
            span = (start, end)  # of an extent that was not in ``extents``
        coming = self._coming.pop(span, None)
        data = self._bucket.get(self._key, *span) if coming is None else coming.result()
        self._held = (span, memoryview(data))
        self._coming = {
            behind: self._ahead.submit(self._bucket.get, self._key, *behind)
            for behind in self._spans[index + 1 : index + 2]
        }
        return span[0], self._held[1]

    def _read_footer(self, tail: memoryview, tail_at: int) -> Footer:
        """Return the footer, mostly from bytes read already."""
        try:
            trailer = decode_trailer(tail)
            end = self._size_bytes - TRAILER_BYTES
            if trailer.footer_at < tail_at:
                view = memoryview(self._bucket.get(self._key, trailer.footer_at, end))
            else:
                view = tail[trailer.footer_at - tail_at : end - tail_at]
            footer = Footer(view, trailer)
            footer.check()
        except Damaged as error:
            raise self._damaged(str(error)) from error
        return footer

    def _damaged(self, why: str) -> StorageUnavailable:
        return StorageUnavailable(
            f"{self._path}: {why}: the object was changed after it was written; restore it from "
            "a version or a copy of the bucket"
        )
