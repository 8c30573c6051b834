"""Recovery of the index from the bucket, the only code that lists all objects.

Headers and footers are read twice: once to decide which objects are live (``recovery_plan``), with
the extents of all in memory, and again for the rows of the live ones.
"""

import json
import re
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from gateway.errors import StorageUnavailable, as_value
from gateway.model import PartitionIdentity
from storage_adapters.formats.damage import Damaged, TooNew
from storage_adapters.formats.footer import HIGH_SHIFT, LOW_32, ROW_STRIDE
from storage_adapters.formats.object_index import pack_rows
from storage_adapters.s3.bucket import Bucket, ObjectMissing, ObjectStat
from storage_adapters.s3.change import BoundsRow, Change, NewObject, ObjectId
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.index import Index
from storage_adapters.s3.log_ends import DataPlace, end_logs
from storage_adapters.s3.merged_change import READ_BYTES
from storage_adapters.s3.opening import FORMAT, MARKER, read_marker
from storage_adapters.s3.queries import rows_below
from storage_adapters.s3.recovery_chains import SeenObject
from storage_adapters.s3.recovery_footers import (
    EvaluatedObject,
    ObjectEnds,
    add_facts,
    evaluate,
    read_ends,
)
from storage_adapters.s3.recovery_plan import Decision, FooterFacts, Uncovered, decide
from storage_adapters.s3.state import Extent, StoredObject, object_key

THREADS: Final = 16
AHEAD_MAX: Final = 64  # objects read in advance
GAP_BYTES_MAX: Final = 65_536
_KEY: Final = re.compile(r"objects/(\d{16})-(\d{1,10})\.seg")
_NOBODY: Final = 0  # owner of data that no node has opened

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class DamagedKey(NamedTuple):
    """An unreadable object, with the reason."""

    key: str
    text: str


class Survey(NamedTuple):
    """Contents of the bucket. ``epoch``, ``next_number``: above those of all objects."""

    data_uuid: UUID
    facts: FooterFacts
    damaged: list[DamagedKey]
    decision: Decision
    epoch: int
    next_number: int

    @property
    def identities(self) -> list[PartitionIdentity]:
        """Identities of the partitions that are not deleted, by partition id."""
        known, deleted = self.facts.identities, self.facts.deleted
        return [known[i] for i in sorted(known) if i not in deleted]


def survey_bucket(config: S3Config, bucket: Bucket) -> Survey:
    """Read all headers and footers; decide which objects are live. Errors: ``StorageUnavailable``.

    Unreadable objects are in ``damaged``; an object of a later format is an error. So are offsets
    that would be lost although a readable object has them.
    """
    bucket.check()
    data_uuid = read_marker(config, bucket)
    seen: list[SeenObject] = []
    facts = FooterFacts()
    damaged: list[DamagedKey] = []
    damaged_epochs: set[int] = set()
    epoch = number = 0
    stats = bucket.list(f"{config.prefix}objects/")
    for key, found in _ahead(_named(config, stats), lambda one: _see(bucket, one)):
        epoch, number = max(epoch, key.epoch), max(number, key.number)
        if isinstance(found, Damaged):
            damaged.append(DamagedKey(key.stat.key, str(found)))
            damaged_epochs.add(key.epoch)
        elif found is not None:
            if data_uuid is None:
                data_uuid = found.header.data_uuid
            if found.header.data_uuid != data_uuid:
                text = f"it is of the data {found.header.data_uuid}, not {data_uuid}"
                damaged.append(DamagedKey(key.stat.key, text))
                continue
            seen.append(found.seen)
            add_facts(facts, found)
    if data_uuid is None:
        raise StorageUnavailable(
            f"bucket {config.bucket!r} holds no data under the prefix {config.prefix!r}"
        )
    decision = decide(seen, facts, damaged_epochs)
    if decision.uncovered:
        raise StorageUnavailable(_uncovered_text(config, decision.uncovered, damaged))
    return Survey(data_uuid, facts, damaged, decision, epoch, number + 1)


def restore_index(
    config: S3Config, bucket: Bucket, index: Index, survey: Survey, unix_ms: int = 0
) -> None:
    """Replace the index: live objects are restored, all others become dead.

    ``unix_ms``: the time of what it puts, when the bucket has several logs.

    Errors: ``StorageUnavailable``; then nothing has changed, or it must be repeated.
    """
    if read_marker(config, bucket) is None:
        marker = json.dumps({"format": FORMAT, "data_uuid": str(survey.data_uuid)}).encode()
        bucket.put(f"{config.prefix}{MARKER}", [marker])
    decision = survey.decision
    restoring = _Restoring(config, bucket, survey)
    index.restore(
        restoring.objects(),
        restoring.bounds(),
        data_uuid=survey.data_uuid,
        bucket=config.bucket,
        prefix=config.prefix,
        ends=decision.ends,
        next_number=survey.next_number,
        epoch=survey.epoch,
        pending=[ObjectId(one.number, one.epoch) for one in restoring.never_live],
    )
    # They would disturb the next recovery: the sweeper deletes them later.
    epoch = index.take_over(_NOBODY, reserve=0).epoch
    index.commit(epoch, Change(gone=tuple([one.number for one in restoring.dead])))
    if len(decision.ends) > 1:  # a log's partitions may go on in another log
        place = DataPlace(bucket, config.prefix, survey.data_uuid)
        end_logs(place, index, unix_ms, when=lambda _row: True)


def batches_of(
    config: S3Config, bucket: Bucket, survey: Survey, partition_id: int
) -> Iterator[bytes]:
    """Yield a partition's live batches by object, without checking CRCs."""
    for stored, parts in survey.decision.live:
        for part in parts:
            if part.partition_id == partition_id:
                yield from _batches_in(config, bucket, stored, part.extent)


def _uncovered_text(
    config: S3Config, uncovered: Sequence[Uncovered], damaged: Sequence[DamagedKey]
) -> str:
    stored, partition_id, first, end = uncovered[0]
    key = object_key(config.prefix, stored.number, stored.epoch)
    count = len({one.stored.number for one in uncovered})
    others = f" So it is with {count - 1} more objects." if count > 1 else ""
    broken = f" Damaged are {len(damaged)}, the first {damaged[0].key}." if damaged else ""
    return (
        f"offsets {first} to {end - 1} of partition {partition_id} are in {key} only, which cannot"
        " be used: objects that were put with it, or made of it, are missing or damaged. Bring"
        " these back, or move it out of the bucket to recover without these offsets."
        f"{others}{broken}"
    )


class _Restoring:
    """Rows for the index, object by object; call ``bounds`` after ``objects`` has ended."""

    def __init__(self, config: S3Config, bucket: Bucket, survey: Survey) -> None:
        self._config = config
        self._bucket = bucket
        self._survey = survey
        self._below: dict[int, int] = {}
        decision = survey.decision
        self._first = _first_extents(decision)
        # Those of the log keep what shows them to be so in the bucket (``sweeper``).
        self.never_live = [*decision.stale, *decision.unproven]
        numbers = frozenset([one.number for one in self.never_live])
        self.dead = [one for one in decision.unused if one.number not in numbers]

    def objects(self) -> Iterator[NewObject]:
        """Yield the live objects with their rows, then the dead ones without parts."""
        live = self._survey.decision.live
        for (stored, parts), read in _ahead(live, lambda one: self._read(one.stored)):
            for partition_id, extent in parts:
                if self._first[partition_id] == extent:
                    start = self._survey.decision.starts.get(partition_id, 0)
                    below_bytes = rows_below(read.footer.rows, extent, start)
                    self._below[partition_id] = below_bytes
            yield NewObject(stored, parts, pack_rows(array("q", read.footer.rows)))
        for stored in self.dead:
            # No scan and no merge uses it, should the process stop before it is dead.
            nothing = stored._replace(
                first_sequence=0, next_sequence=0, partition_ids=frozenset()
            )
            yield NewObject(nothing, [], pack_rows(array("q")))

    def bounds(self) -> Iterator[BoundsRow]:
        """Yield log starts and deletions."""
        starts, deleted = self._survey.decision.starts, self._survey.facts.deleted
        for partition_id in sorted(starts.keys() | deleted):
            yield BoundsRow(
                partition_id,
                starts.get(partition_id, 0),
                self._below.get(partition_id, 0),
                partition_id in deleted,
            )

    def _read(self, stored: StoredObject) -> ObjectEnds:
        key = object_key(self._config.prefix, stored.number, stored.epoch)
        try:
            return read_ends(self._bucket, key)
        except Damaged as error:
            raise StorageUnavailable(f"object {key}: {error}") from error


def _first_extents(decision: Decision) -> dict[int, Extent]:
    first: dict[int, Extent] = {}
    for _, parts in decision.live:
        for partition_id, extent in parts:
            first[partition_id] = min(extent, first.get(partition_id, extent))
    return first


class _Named(NamedTuple):
    """Key of an object."""

    stat: ObjectStat
    number: int
    epoch: int


def _named(config: S3Config, stats: Iterable[ObjectStat]) -> Iterator[_Named]:
    """Yield the keys that name objects; other keys are ignored."""
    for stat in stats:
        match = _KEY.fullmatch(stat.key.removeprefix(config.prefix))
        if match is not None:
            yield _Named(stat, int(match[1]), int(match[2]))


def _ahead(
    items: Iterable[_Item], work: Callable[[_Item], _Result]
) -> Iterator[tuple[_Item, _Result]]:
    """Yield the results of ``work`` in order, computed in threads up to ``AHEAD_MAX`` ahead."""
    waiting: deque[tuple[_Item, Future[_Result]]] = deque()
    with ThreadPoolExecutor(THREADS, "headgate-recover") as executor:
        try:
            for item in items:
                waiting.append((item, executor.submit(work, item)))
                if len(waiting) >= AHEAD_MAX:
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
        finally:
            executor.shutdown(wait=True, cancel_futures=True)


def _see(bucket: Bucket, named: _Named) -> EvaluatedObject | Damaged | None:
    """Return an object's header and footer, or its damage; None if it was deleted meanwhile."""
    key = named.stat.key
    try:
        header, footer = read_ends(bucket, key)
        said = (header.number, header.incarnation, footer.trailer.number)
        if said != (named.number, named.epoch, named.number):
            return Damaged(f"it says of itself that it is object {header.number}")
        return evaluate(header, footer, named.stat)
    except ObjectMissing:
        return None
    except Damaged as error:
        return as_value(error)
    except TooNew as error:
        raise StorageUnavailable(f"object {key} is of a newer Headgate's: {error}") from error


def _batches_in(
    config: S3Config, bucket: Bucket, stored: StoredObject, extent: Extent
) -> Iterator[bytes]:
    key = object_key(config.prefix, stored.number, stored.epoch)
    rows = read_ends(bucket, key).footer.rows
    first, end = extent.first_row, extent.first_row + extent.row_count
    places = sorted(
        (place & LOW_32, place >> HIGH_SHIFT)
        for place in rows[first * ROW_STRIDE + 2 : end * ROW_STRIDE : ROW_STRIDE]
    )
    for piece in _pieces(places):
        start = piece[0][0]
        data = bucket.get(key, start, sum(piece[-1]))
        for position, size_bytes in piece:
            yield data[position - start :][:size_bytes]


def _pieces(places: Iterable[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Yield (position, size) of ranges of batches that are read in one request."""
    piece: list[tuple[int, int]] = []
    for place in places:
        end = sum(piece[-1]) if piece else place[0]
        if piece and (place[0] - end > GAP_BYTES_MAX or end - piece[0][0] >= READ_BYTES):
            yield piece
            piece = []
        piece.append(place)
    if piece:
        yield piece
