"""``archive``: topics into a lake table, each record exactly once.

A round takes durable records, up to a bound of bytes: workers write Parquet files, and one
commit adds them with the new position of each partition. A run that dies between the two leaves
files that no table names, and the next run repeats the round.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.model import PartitionIdentity
from pipeline.archive.bad_batches import keep_bad
from pipeline.archive.split_files import FileLimits, SplitResult, write_split
from pipeline.lake.port import Lake
from pipeline.log.access import views
from pipeline.log.options import Options
from pipeline.log.splits import Positions, Split, checked, plan, wanted
from pipeline.log.views import PartitionView

if TYPE_CHECKING:  # a dry run needs no Spark
    from pyspark.sql import SparkSession

ROUND_BYTES_MAX: Final = 2 * 1024**3
DEFAULT_LIMITS: Final = FileLimits()


class ArchiveRound(NamedTuple):
    """Result of one round: the rows archived, and the new positions of its partitions."""

    rows: int
    files: int
    bytes_read: int
    bytes_written: int
    bad_batches: int
    positions: Mapping[PartitionIdentity, int]


class Archive:
    """One run, from the table's positions to the durable end of the log at the run's start.

    ``lake`` None: a table that does not exist yet, for a plan.
    """

    def __init__(
        self,
        options: Options,
        lake: Lake | None,
        *,
        round_bytes_max: int = ROUND_BYTES_MAX,
        limits: FileLimits = DEFAULT_LIMITS,
    ) -> None:
        self._options = options
        self._lake = lake
        self._round_bytes_max = round_bytes_max
        self._limits = limits
        self._found = wanted(views(options), options)
        self._start = {place: self._position(view) for place, view in self._found.items()}
        self._ends = {place: view.end for place, view in self._found.items()}
        planned = plan(self._found, self._start, self._ends, options)
        self.bytes_planned = sum(map(_size_bytes, planned))
        self.records_planned = sum(
            self._ends[place] - start for place, start in self._start.items()
        )

    def starts(self) -> dict[PartitionIdentity, int | None]:
        """Return the table's positions at the run's start; None: begin at the log's start."""
        return {
            view.identity: self._start[place] if self._start[place] > view.start else None
            for place, view in self._found.items()
        }

    def _position(self, view: PartitionView) -> int:
        """Return the next offset. Error: ``OffsetOutOfRange`` if unarchived records are gone."""
        position = None if self._lake is None else self._lake.position(view.identity)
        if position is None:
            return view.start
        return checked(view, position, fails_on_loss=self._options.fails_on_loss)

    def run(self, spark: "SparkSession", on_round: Callable[[ArchiveRound], None]) -> None:
        """Archive all that was planned. Errors: ``Overtaken``, ``LakeUnavailable``."""
        lake = self._lake
        assert lake is not None
        start = self._start
        while start != self._ends:
            end = round_end(self._found, start, self._ends, bytes_max=self._round_bytes_max)
            splits = plan(self._found, start, end, self._options)
            results = self._write(spark, lake, splits) if splits else []
            files = [file for result in results for file in result.files]
            moved = {
                self._found[place].identity: offset
                for place, offset in end.items()
                if offset != start[place]
            }
            bad = [one for result in results for one in result.bad]
            keep_bad(lake, bad, list(moved))
            lake.commit(files, moved)
            on_round(
                ArchiveRound(
                    rows=sum(file.row_count for file in files),
                    files=len(files),
                    bytes_read=sum(map(_size_bytes, splits)),
                    bytes_written=sum(file.size_bytes for file in files),
                    bad_batches=len(bad),
                    positions=moved,
                )
            )
            start = end

    def _write(
        self, spark: "SparkSession", lake: Lake, splits: list[Split]
    ) -> list[SplitResult]:
        options, url, layout, limits = self._options, lake.url, lake.layout, self._limits
        tasks = spark.sparkContext.parallelize(splits, len(splits))
        return tasks.map(
            lambda split: write_split(split, options, url, layout, limits)
        ).collect()


def round_end(
    found: Mapping[str, PartitionView], start: Positions, ends: Positions, *, bytes_max: int
) -> Positions:
    """Return the end of a round of about ``bytes_max``, with one file's part at least.

    Each partition is taken in order of offset.
    """
    end = dict(start)
    left_bytes = bytes_max
    for place, view in found.items():
        for extent in view.extents:
            if extent.end <= start[place] or extent.first >= ends[place]:
                continue
            if left_bytes <= 0:
                return end
            left_bytes -= extent.size_bytes
            end[place] = min(extent.end, ends[place])
        if left_bytes > 0:
            end[place] = ends[place]  # also past what compaction has removed
    return end


def _size_bytes(split: Split) -> int:
    return sum(piece.extent.size_bytes for piece in split.pieces)
