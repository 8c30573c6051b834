"""Settled segments in use, as readers and the settler see them. Loop only."""

from collections.abc import Iterator, Sequence

from storage_adapters.formats.footer import Part
from storage_adapters.formats.manifest import SHARED, FileRecord, Manifest
from storage_adapters.segment_log.segments import Footers, Segment


class SettledSet:
    """One state of the manifest with its segments; a change makes another one.

    ``directory`` holds bounds and identities of partitions that no log segment mentions.
    """

    __slots__ = ("_owned", "_shared", "directory", "manifest", "segments")

    def __init__(self, manifest: Manifest, segments: Sequence[Segment]) -> None:
        self.manifest = manifest
        self.segments = {segment.number: segment for segment in segments}
        self.directory = self.segments.get(manifest.directory)
        self._owned: dict[int, list[Segment]] = {}
        self._shared: list[Segment] = []
        for segment in segments:
            if segment is self.directory:
                continue
            owner = record_of(segment).owner
            if owner == SHARED:
                self._shared.append(segment)
            else:
                self._owned.setdefault(owner, []).append(segment)

    @property
    def shared(self) -> Sequence[Segment]:
        """Segments with batches of several partitions, oldest first."""
        return self._shared

    def owners(self) -> Iterator[int]:
        """Yield the partitions that have segments of their own."""
        return iter(self._owned)

    def owned(self, partition_id: int) -> Sequence[Segment]:
        """Return the partition's own segments, oldest first."""
        return self._owned.get(partition_id, ())

    def parts(self, footers: Footers, partition_id: int) -> list[tuple[Segment, Part]]:
        """Return the parts with a partition's settled batches, lowest offset first."""
        found = []
        for segment in (*self._owned.get(partition_id, ()), *self._shared):
            if partition_id in record_of(segment).dead:
                continue
            part = footers.get(segment).find(partition_id)
            if part is not None:
                found.append((segment, part))
        found.sort(key=lambda pair: pair[1].start)
        return found

    def mentions(self, footers: Footers, partition_id: int) -> bool:
        """Return whether any settled segment lists the partition."""
        if partition_id in self._owned:
            return True
        if self.directory is not None and footers.get(self.directory).find(partition_id):
            return True
        return any(
            partition_id not in record_of(segment).dead
            and footers.get(segment).find(partition_id) is not None
            for segment in self._shared
        )


def record_of(segment: Segment) -> FileRecord:
    """Return the manifest's record of a settled segment."""
    assert segment.record is not None
    return segment.record
