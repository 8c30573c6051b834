"""Replay: headers of all stored batches in order of sequence, to rebuild state at a start."""

from collections.abc import Iterator, Sequence

from gateway.errors import StorageUnavailable
from gateway.model import HEADER_BYTES
from gateway.storage import StoredHeader, Target
from storage_adapters.formats.damage import Damaged
from storage_adapters.formats.entry import KIND_BATCH, decode_entry_header, decode_targets
from storage_adapters.formats.segment import SEGMENT_HEADER_BYTES
from storage_adapters.segment_log.loading import mapped
from storage_adapters.segment_log.segments import Segment


def stored_headers(segments: Sequence[Segment], from_sequence: int) -> Iterator[StoredHeader]:
    """Yield the headers of closed segments for ``StorageAdapter.scan``, without reading bodies.

    Errors: ``StorageUnavailable`` naming the place.
    """
    for segment in segments:
        if segment.live is None and segment.next_sequence > from_sequence:
            yield from _headers_of(segment, from_sequence)


def _headers_of(segment: Segment, from_sequence: int) -> Iterator[StoredHeader]:
    at, end, seed = SEGMENT_HEADER_BYTES, segment.entries_end, segment.header.seed
    with mapped(segment.path) as view:
        while at < end:
            try:
                entry = decode_entry_header(view, at, end, seed)
            except Damaged as error:
                raise StorageUnavailable(f"{segment.path}: position {at}: {error}") from error
            if entry.kind == KIND_BATCH and entry.sequence >= from_sequence:
                body_at = at + entry.body_at
                yield StoredHeader(
                    entry.sequence,
                    tuple(map(Target._make, decode_targets(view, at, entry.target_count))),
                    bytes(view[body_at : body_at + HEADER_BYTES]),
                    entry.is_abort,
                )
            at += entry.size_bytes
