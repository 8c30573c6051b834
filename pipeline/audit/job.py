"""``audit``: records missing, duplicated or out of order in the log, or in a lake table of it.

Workers check the headers of each file (``audit_headers``); this module joins the files of a
partition: offsets missing between two files, offsets that two files have, and whether producers
continue in one file where they ended in the one before.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.errors import OffsetOutOfRange
from pipeline.audit import findings as kinds
from pipeline.audit.compacted import compacted_partitions
from pipeline.audit.findings import Finding, Findings
from pipeline.audit.groups import check_groups
from pipeline.audit.headers import Raw, Walk, walk
from pipeline.audit.producers import Mark, judge
from pipeline.log.access import find_again, open_extents, views
from pipeline.log.options import Options
from pipeline.log.splits import wanted
from pipeline.log.views import Extent, FileGone, PartitionView
from storage_adapters.segment_log.segments import WAL_DIRECTORY

if TYPE_CHECKING:  # a dry run needs no Spark
    from pyspark.sql import SparkSession

    from pipeline.audit.rows import LakeRows

_TASK_BYTES: Final = 256 * 1024 * 1024


class AuditTask(NamedTuple):
    """One extent to be checked. ``place`` is "topic/number"."""

    place: str
    extent: Extent
    may_have_holes: bool


class AuditResult(NamedTuple):
    """Result for one place: a walk for each file that has its offsets now."""

    place: str
    walks: list[Walk]
    gone: list[Raw]


class PartitionCounts(NamedTuple):
    """Counts of one partition."""

    topic: str
    partition: int
    start: int
    end: int
    batches: int
    records: int
    bytes: int
    is_compacted: bool


class Audit:
    """One run over the log as it was durable when planned."""

    def __init__(self, options: Options, metadata_url: str | None) -> None:
        """Plan the run. Errors: ``OffsetOutOfRange``, ``StorageUnavailable``."""
        every = views(options)
        self.options = options
        self.found = wanted(every, options)
        self.all_views = every
        self.compacted = compacted_partitions(every, options, metadata_url)
        self.findings = Findings()
        self.counts: list[PartitionCounts] = []
        self.rows_compared = 0
        self.bytes_planned = sum(one.size_bytes for one in self._extents())

    @property
    def offsets_planned(self) -> int:
        """Number of offsets of the partitions."""
        return sum(view.end - view.start for view in self.found.values())

    def is_compacted(self, view: PartitionView) -> bool:
        """Whether compaction may have removed records of a partition."""
        return view.identity.partition_id in self.compacted

    def run(self, spark: "SparkSession", on_bytes: Callable[[int], None]) -> None:
        """Check all headers; ``on_bytes`` gets the sizes of finished batches."""
        groups = list(_grouped(self._places()))
        options = self.options
        judged: dict[str, AuditResult] = {}
        if groups:
            tasks = spark.sparkContext.parallelize(groups, len(groups))
            for found in tasks.map(lambda group: _judge_all(group, options)).toLocalIterator(
                prefetchPartitions=True
            ):
                for one in found:
                    kept = judged.setdefault(one.place, AuditResult(one.place, [], []))
                    kept.walks.extend(one.walks)
                    kept.gone.extend(one.gone)
                on_bytes(sum(walk.size_bytes for one in found for walk in one.walks))
        for place, view in self.found.items():
            self._put_together(view, judged.get(place, AuditResult(place, [], [])))

    def check_lake(self, spark: "SparkSession", lake: "LakeRows") -> None:
        """Compare with a table, up to its positions."""
        from pipeline.audit.lake_comparison import LakeAudit

        check = LakeAudit(self.found, self.options, lake, self.compacted)
        self.findings.add(check.run(spark))
        self.rows_compared = check.rows_compared

    def check_records(self, spark: "SparkSession") -> None:
        """Decode every record: CRCs, and offsets within batches."""
        from pipeline.audit.records import check_records

        self.findings.add(check_records(spark, self.found, self.options))

    def check_groups(self) -> None:
        """Compare the committed offsets of groups with the log."""
        self.findings.add(check_groups(self.all_views, self.found, self.options))

    def _extents(self) -> Iterator[Extent]:
        for view in self.found.values():
            yield from view.extents

    def _places(self) -> Iterator[AuditTask]:
        for place, view in self.found.items():
            for extent in view.extents:
                yield AuditTask(place, extent, self.is_compacted(view))

    def _put_together(self, view: PartitionView, judged: AuditResult) -> None:
        joined = _Joined(view)
        for one in sorted(judged.walks, key=lambda walk: (walk.first, walk.end)):
            joined.add(one)
        joined.end()
        topic, number = view.identity.topic.name, view.identity.number
        raw = [*judged.gone, *joined.findings]
        self.findings.add(Finding(one.kind, topic, number, *one[1:]) for one in raw)
        self.counts.append(
            PartitionCounts(
                topic,
                number,
                view.start,
                view.end,
                sum(one.batch_count for one in judged.walks),
                sum(one.record_count for one in judged.walks),
                sum(one.size_bytes for one in judged.walks),
                self.is_compacted(view),
            )
        )


class _Joined:
    """The files of one partition, lowest offsets first."""

    def __init__(self, view: PartitionView) -> None:
        self.findings: list[Raw] = []
        self._view = view
        self._reached = view.start
        self._holes = 0
        self._producers: dict[int, Mark] = {}

    def add(self, one: Walk) -> None:
        reached = self._reached
        if one.first > reached:
            self._missing(one.first)
        elif one.first < min(reached, one.end):
            upto = min(reached, one.end)
            text = "two files have them"
            twice = upto - one.first
            self.findings.append(Raw(kinds.DUPLICATE, one.first, upto - 1, twice, text))
        self._reached = max(reached, one.end)
        self.findings += one.findings
        for span in one.producers:
            first, last = self._counted(span.first), self._counted(span.last)
            before = self._producers.get(span.producer_id)
            wrong = None if before is None else judge(span.producer_id, before, first)
            if wrong is not None:
                self.findings.append(Raw(*wrong))
            self._producers[span.producer_id] = last
        self._holes += one.hole_count

    def _counted(self, mark: Mark) -> Mark:
        """Return a mark that counts the holes of earlier files too."""
        return mark._replace(holes_before=mark.holes_before + self._holes)

    def end(self) -> None:
        if self._reached < self._view.end:
            self._missing(self._view.end)

    def _missing(self, upto: int) -> None:
        first = self._reached
        text = "no file has them"
        self.findings.append(Raw(kinds.MISSING, first, upto - 1, upto - first, text))


def _grouped(places: Iterable[AuditTask]) -> Iterator[list[AuditTask]]:
    """Group the extents of one file, up to some size, for one task."""
    by_path: dict[str, list[AuditTask]] = {}
    for place in places:
        by_path.setdefault(place.extent.path, []).append(place)
    group: list[AuditTask] = []
    size_bytes = 0
    for found in by_path.values():
        group += found
        size_bytes += sum(one.extent.size_bytes for one in found)
        if size_bytes >= _TASK_BYTES:
            yield group
            group, size_bytes = [], 0
    if group:
        yield group


def _judge_all(places: list[AuditTask], options: Options) -> list[AuditResult]:
    return [_judge(place, options) for place in places]


def _judge(place: AuditTask, options: Options) -> AuditResult:
    """Check an extent in its file, or in the file to which it was moved meanwhile."""
    judged = AuditResult(place.place, [], [])
    waiting = [place.extent]
    while waiting:
        extent = waiting.pop(0)
        try:
            with open_extents(options, extent.path, [extent]) as reader:
                judged.walks.append(
                    walk(
                        reader.batches(extent),
                        extent.first,
                        extent.end,
                        may_have_holes=place.may_have_holes and not _is_as_written(extent),
                    )
                )
        except FileGone:
            waiting = [*_found_again(options, extent, judged), *waiting]
    return judged


def _found_again(options: Options, extent: Extent, judged: AuditResult) -> list[Extent]:
    try:
        return find_again(options, extent)
    except OffsetOutOfRange as error:
        first, last = extent.first, extent.end - 1
        raw = Raw(kinds.REMOVED_MEANWHILE, first, last, last - first + 1, str(error))
        judged.gone.append(raw)
        return []


def _is_as_written(extent: Extent) -> bool:
    """Return whether compaction never touches the file: it rewrites settled files only."""
    return Path(extent.path).parent.name == WAL_DIRECTORY
