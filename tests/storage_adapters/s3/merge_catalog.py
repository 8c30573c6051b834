"""A catalog with objects in a dictionary, for what is pure."""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from gateway.model import PartitionIdentity, TopicName
from gateway.storage import Entry
from storage_adapters.formats.bodies import Introduction, encode_introduction
from storage_adapters.formats.footer import TRAILER_BYTES, Footer, decode_trailer
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.merge_plan import dead_own, group_inputs
from storage_adapters.s3.merge_round import PlannedObject, merge_objects, note_object
from storage_adapters.s3.merged_change import Replacement
from storage_adapters.s3.merged_object import (
    MergedObject,
    Source,
    build_merged_object,
    ids_in_footers,
    open_source,
    told_parts,
)
from storage_adapters.s3.objects import Appends, ObjectHeader, Part, build_log_object
from storage_adapters.s3.state import (
    KIND_LOG,
    KIND_SETTLED,
    Catalog,
    Extent,
    StoredObject,
)

DATA_UUID = UUID(int=7)
CONFIG = S3Config(
    bucket="bucket",
    merge_objects_min=4,
    merge_bytes_min=1_000_000,
    merge_bytes_max=2_000_000,
    object_bytes=65_536,
    merge_after_ms=60_000,
    partition_object_bytes_min=4_096,
)


def identity_of(partition_id: int) -> PartitionIdentity:
    """Return what a partition is called."""
    topic = TopicName("default", f"t{partition_id}")
    return PartitionIdentity(partition_id, UUID(int=partition_id), topic, 0)


def introduction(partition_id: int, start: int = 0, end: int = 0) -> bytes:
    """Return a partition's introduction, encoded."""
    return encode_introduction(Introduction(identity_of(partition_id), start, end))


def make_stored(  # One argument per field that a plan looks at.
    number: int,
    sequences: tuple[int, int],
    *,
    kind: int = KIND_LOG,
    size_bytes: int = 1_000,
    changed_unix_ms: int = 0,
    partition_ids: Iterable[int] = (1,),
) -> StoredObject:
    """Return an object that is nowhere."""
    return StoredObject(
        number, kind, 1, *sequences, size_bytes, "", changed_unix_ms, frozenset(partition_ids)
    )


def make_extent(first: int, end: int, number: int, size_bytes: int = 100) -> Extent:
    """Return an extent of one batch."""
    return Extent(first, end, number, 0, 1, size_bytes, 0, ((1, first),))


def footer_of(data: bytes | memoryview) -> Footer:
    """Return the footer at the end of an object."""
    view = memoryview(data)
    trailer = decode_trailer(view)
    return Footer(view[trailer.footer_at : len(view) - TRAILER_BYTES], trailer)


class MergeCatalog:
    """Objects and the catalog that knows them; numbers and sequences count up by themselves."""

    def __init__(self, epoch: int = 1) -> None:
        self.catalog = Catalog()
        self.data: dict[int, bytes] = {}
        self.epoch = epoch
        self.next_number = 1
        self.next_sequence = 1
        self.began: dict[int, int] = {}  # by epoch: where its owner took over

    def log(self, entries: Sequence[Entry], told: Iterable[int] = ()) -> StoredObject:
        """Put an object of appends of one entry each."""
        catalog, number = self.catalog, self.take_number()
        for entry in entries:
            for partition_id, base_offset in entry.targets:
                catalog.partition(partition_id).end = base_offset + entry.record_count
        ids = {target.partition_id for entry in entries for target in entry.targets}
        parts = {i: self.told(i) for i in ids | set(told)}
        appends = Appends(entries, frozenset(range(len(entries))), self.next_sequence)
        began = self.began.setdefault(self.epoch, self.next_sequence)
        previous = self.next_sequence - began
        place = ObjectHeader(DATA_UUID, number, self.epoch, number * 10, previous)
        built = build_log_object(place, appends, parts)
        self.data[number] = built.data
        stored = StoredObject(
            number,
            KIND_LOG,
            self.epoch,
            appends.first_sequence,
            appends.next_sequence,
            len(built.data),
            "",
            number * 10,
            frozenset([part.partition_id for part in built.parts]),
        )
        self.next_sequence = appends.next_sequence
        catalog.objects[number] = stored
        for partition_id, extent in built.parts:
            catalog.partition(partition_id).extents.append(extent)
        return stored

    def told(self, partition_id: int) -> Part:
        """Return what a footer says of a partition."""
        state = self.catalog.partition(partition_id)
        known = None if state.is_deleted else introduction(partition_id, state.start, state.end)
        return Part(state.start, state.end, state.is_deleted, known)

    def sources(self, inputs: Iterable[StoredObject]) -> dict[int, Source]:
        """Return inputs as they are read."""
        return {o.number: open_source(o, self.data[o.number]) for o in inputs}

    def merge(self, inputs: Sequence[StoredObject], own_bytes_min: int = 1 << 40) -> list[int]:
        """Put what a round makes in the place of ``inputs``; return the new numbers."""
        made = self.build(inputs, own_bytes_min)
        self.replace(inputs, made)
        return [merged.stored.number for merged in made]

    def replace(
        self,
        gone: Iterable[StoredObject],
        made: Sequence[MergedObject],
        lost: Mapping[int, frozenset[int]] | None = None,
    ) -> None:
        """Put ``made``, and have it count in the place of objects, and of parts of others."""
        replacement = Replacement(made, [o.number for o in gone], lost)
        for state in self.catalog.partitions.values():
            state.extents = replacement.extents_of(state)
        for number in replacement.gone:
            del self.catalog.objects[number]
        for number, ids in replacement.lost.items():
            stored = self.catalog.objects[number]
            left = stored.partition_ids - ids
            self.catalog.objects[number] = stored._replace(partition_ids=left)
        for merged in made:
            self.catalog.objects[merged.stored.number] = merged.stored
            self.data[merged.stored.number] = b"".join(merged.body)

    def build(
        self, inputs: Sequence[StoredObject], own_bytes_min: int = 1 << 40
    ) -> list[MergedObject]:
        """Return what a round makes of ``inputs``, the shared object last."""
        sources = self.sources(inputs)
        grouping = group_inputs(self.catalog, inputs, own_bytes_min)
        *own, shared = merge_objects(grouping, inputs, ids_in_footers(sources.values()))
        number = self.take_number()  # as ``Merger`` does: the shared object has the lowest one
        made = [self.make(one, sources, told_parts(self.catalog, one.told_ids)) for one in own]
        told = told_parts(self.catalog, shared.told_ids)
        return [*made, self.make(shared, sources, told, number)]

    def note(self, untold: Iterable[int] = ()) -> list[StoredObject]:
        """Put a note in the place of own objects that are dead; return these."""
        dead = dead_own(self.catalog)
        planned = note_object(self.catalog.objects.values(), dead, untold)
        if planned is not None:
            told = {i: self.told(i) for i in planned.told_ids}
            self.replace(dead, [self.make(planned, {}, told)])
        return dead

    def make(
        self,
        planned: PlannedObject,
        sources: dict[int, Source],
        told: dict[int, Part],
        number: int | None = None,
    ) -> MergedObject:
        """Return a planned object, which is nowhere yet."""
        if number is None:
            number = self.take_number()
        place = ObjectHeader(DATA_UUID, number, self.epoch, 1_000)
        return build_merged_object(
            place, planned.runs, sources, told, sequences=planned.sequences, pace=lambda: None
        )

    def take_number(self) -> int:
        """Return the next object's number."""
        self.next_number += 1
        return self.next_number - 1


def is_settled(stored: StoredObject) -> bool:
    """Whether an object is a merged one."""
    return stored.kind == KIND_SETTLED
