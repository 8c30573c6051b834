"""One round of ``compact``: its plan, made by the driver, and its execution in a task."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gateway.model import HEADER_BYTES, unpack_batch_header
from pipeline.log.options import S3Place
from pipeline.log.s3_log import bucket_of
from pipeline.log.s3_object import GET_BYTES_MAX
from storage_adapters.formats.footer import LOW_32, ROW_STRIDE
from storage_adapters.s3 import merge_plan
from storage_adapters.s3.bucket import Bucket
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.merge_plan import PartRun
from storage_adapters.s3.merged_object import (
    DamagedObject,
    MergedObject,
    Source,
    build_merged_object,
    open_source,
)
from storage_adapters.s3.objects import ObjectHeader, Part
from storage_adapters.s3.state import (
    KIND_LOG,
    Catalog,
    PartitionState,
    StoredObject,
    object_key,
)

_ALL: Final = 1 << 62  # sequences


class Output(NamedTuple):
    """An object to be built. ``is_shared``: it repeats other records of the inputs' footers."""

    runs: list[PartRun]
    sequences: tuple[int, int]
    is_shared: bool


class MergeRound(NamedTuple):
    """Inputs and the outputs that replace them in one commit."""

    inputs: list[StoredObject]
    outputs: list[Output]

    @property
    def size_bytes(self) -> int:
        """Size of the inputs."""
        return sum(stored.size_bytes for stored in self.inputs)


class Outcome(NamedTuple):
    """Result of a round: the objects put, or the inputs that prevented it.

    ``left``: their numbers. ``damage`` names the fault of a damaged one; without it they have
    headers that a start reads.
    """

    made: list[MergedObject]
    left: tuple[int, ...] = ()
    damage: str = ""


def plan_rounds(
    catalog: Catalog, config: S3Config, *, now_unix_ms: int, skip: set[int]
) -> list[MergeRound]:
    """Return all rounds that can run at once; no object is in two of them, or in ``skip``.

    Objects with headers that a start reads are only found when they are read (``merge``).
    """
    taken = set(skip)
    rounds: list[MergeRound] = []
    for inputs in _runs(catalog, config, now_unix_ms, taken):
        taken.update(stored.number for stored in inputs)
        rounds.append(_round(catalog, config, inputs))
    return rounds


def _runs(
    catalog: Catalog, config: S3Config, now_unix_ms: int, taken: set[int]
) -> Iterator[list[StoredObject]]:
    while inputs := merge_plan.log_round(
        catalog, config, released=_ALL, now_unix_ms=now_unix_ms, skip=taken
    ):
        yield inputs
    while inputs := merge_plan.shared_round(catalog.own_objects(), config, skip=taken):
        yield inputs
    for state in catalog.partitions.values():
        while inputs := merge_plan.own_round(catalog, state, config, skip=taken):
            yield inputs


def _round(catalog: Catalog, config: S3Config, inputs: list[StoredObject]) -> MergeRound:
    upto = max(stored.next_sequence for stored in inputs)
    if inputs[0].kind != KIND_LOG and not merge_plan.is_shared(inputs[0]):
        runs = merge_plan.part_runs(catalog, inputs)
        return MergeRound(
            inputs, [Output([run], (upto, upto), is_shared=False) for run in runs]
        )
    grouping = merge_plan.group_inputs(catalog, inputs, config.partition_object_bytes_min)
    outputs = [Output(own, (upto, upto), is_shared=False) for own in grouping.own]
    # The shared one last: when that is in the bucket, all are.
    sequences = inputs[0].first_sequence, inputs[-1].next_sequence
    outputs.append(Output(grouping.shared, sequences, is_shared=True))
    return MergeRound(inputs, outputs)


def told_of(states: Mapping[int, PartitionState]) -> dict[int, Part]:
    """Return the partitions' state for footers; their identities are in the inputs."""
    return {
        partition_id: Part(
            state.start, max(state.start, state.committed_end), state.is_deleted, None
        )
        for partition_id, state in states.items()
    }


def merge(
    round_: MergeRound,
    places: Sequence[ObjectHeader],
    told: Mapping[int, Part],
    s3: S3Place,
    released: int,
) -> Outcome:
    """Read the inputs, build and put the outputs. Errors: ``StorageUnavailable``.

    Merging loses the headers of batches, from which a start restores idempotent producers since
    ``released``: log objects from there on that have such batches stay as they are.
    """
    bucket = bucket_of(s3)
    try:
        sources = {
            stored.number: open_source(stored, _read(bucket, stored, s3.prefix))
            for stored in round_.inputs
        }
        left = tuple(
            stored.number
            for stored in round_.inputs
            if stored.kind == KIND_LOG
            and stored.next_sequence > released
            and _has_idempotent(sources[stored.number])
        )
        if left:
            return Outcome([], left)
        return Outcome(_made(round_, places, told, sources, s3))
    except DamagedObject as error:
        return Outcome([], (error.number,), str(error))


def _made(
    round_: MergeRound,
    places: Sequence[ObjectHeader],
    told: Mapping[int, Part],
    sources: Mapping[int, Source],
    s3: S3Place,
) -> list[MergedObject]:
    noted = _noted(round_, sources)
    made = []
    for place, output in zip(places, round_.outputs, strict=True):
        ids = [run.partition_id for run in output.runs]
        named = noted.union(ids) if output.is_shared else ids
        built = build_merged_object(
            place,
            output.runs,
            sources,
            {one: told[one] for one in named if one in told},
            sequences=output.sequences,
            pace=_no_pause,
        )
        made.append(_put(bucket_of(s3), built, s3.prefix))
    return made


def _has_idempotent(source: Source) -> bool:
    positions = {place & LOW_32 for place in source.footer.rows[2::ROW_STRIDE]}
    return any(
        unpack_batch_header(source.data[at : at + HEADER_BYTES]).is_idempotent
        for at in positions
    )


def _noted(round_: MergeRound, sources: Mapping[int, Source]) -> set[int]:
    """Return the partitions with records in the inputs that no own object repeats."""
    said = {part.partition_id for source in sources.values() for part in source.footer}
    own = [output for output in round_.outputs if not output.is_shared]
    return said.difference([run.partition_id for output in own for run in output.runs])


def _read(bucket: Bucket, stored: StoredObject, prefix: str) -> bytearray:
    data = bytearray(stored.size_bytes)
    key = object_key(prefix, stored.number, stored.epoch)
    for at in range(0, stored.size_bytes, GET_BYTES_MAX):
        end = min(at + GET_BYTES_MAX, stored.size_bytes)
        data[at:end] = bucket.get(key, at, end)
    return data


def _put(bucket: Bucket, made: MergedObject, prefix: str) -> MergedObject:
    etag = bucket.put(object_key(prefix, made.stored.number, made.stored.epoch), made.body)
    return made._replace(body=[], stored=made.stored._replace(etag=etag))


def _no_pause() -> None:
    """Do not pause: nothing else uses this task's bucket or processor."""
