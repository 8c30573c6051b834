"""Comparison of a lake table with the log: every offset below the table's position occurs once.

Both sides are hashed row by row in Spark (time, key, value and headers), and the hashes are added
up for each partition and block of offsets, which no order changes. Only blocks whose sums or
counts differ are compared row by row.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from pipeline.audit import findings as kinds
from pipeline.audit.findings import Finding
from pipeline.audit.rows import LakeRows, log_rows
from pipeline.log.options import Options
from pipeline.log.splits import plan
from pipeline.log.views import PartitionView

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

RUNS_MAX: Final = 10_000  # of differing offsets that are listed
_LOW_32: Final = 0xFFFF_FFFF
_IN, _BELOW, _AHEAD = "in", "below", "ahead"

BlockKey = tuple[str, int, int]  # topic, partition, number of the block


class Sums(NamedTuple):
    """Rows of a block, the halves of their hashes added up, and its lowest and highest offset."""

    rows: int
    low: int
    high: int
    first_offset: int
    last_offset: int


class LakeAudit:
    """Comparison of one table with the log as planned."""

    def __init__(
        self,
        found: Mapping[str, PartitionView],
        options: Options,
        lake: LakeRows,
        compacted: frozenset[int],
    ) -> None:
        self._found = found
        self._options = options
        self._lake = lake
        self._compacted = compacted
        self.positions: dict[str, int] = {}
        self.rows_compared = 0
        self.damaged: list[Finding] = []

    def run(self, spark: "SparkSession") -> Iterator[Finding]:
        """Yield the differences."""
        yield from self._positions()
        start = {place: view.start for place, view in self._found.items()}
        splits = plan(self._found, start, self.positions, self._options)
        log = log_rows(spark, splits, self._options)
        lake = self._zoned(spark, self._lake.frame(spark))
        of_log, damaged = _log_sums(log)
        of_lake = _lake_sums(lake)
        self.damaged = damaged
        yield from damaged
        yield from self._ahead(of_lake)
        yield from self._below(lake, of_lake)
        in_lake = {key[1:]: sums for key, sums in of_lake.items() if key[0] == _IN}
        self.rows_compared = sum(sums.rows for sums in in_lake.values())
        blocks = {
            key
            for key in of_log.keys() | in_lake.keys()
            if _digest(of_log.get(key)) != _digest(in_lake.get(key))
        }
        if blocks:
            yield from self._row_by_row(spark, log, lake, blocks)

    def _positions(self) -> Iterator[Finding]:
        """Read the archived position of each partition."""
        for place, view in self._found.items():
            position = self._lake.position(view.identity)
            topic, number = view.identity.topic.name, view.identity.number
            upto = view.start if position is None else min(max(position, view.start), view.end)
            self.positions[place] = upto
            if position is not None and position > view.end:
                text = f"the table's position is {position}, the log ends at {view.end}"
                count = position - view.end
                yield Finding(
                    kinds.LAKE_AHEAD, topic, number, view.end, position - 1, count, text
                )
            elif upto < view.end:
                count = view.end - upto
                yield Finding(
                    kinds.NOT_IN_LAKE, topic, number, upto, view.end - 1, count, "not yet"
                )

    def _zoned(self, spark: "SparkSession", rows: "DataFrame") -> "DataFrame":
        """Return the table's rows, with a flag whether the log can have them."""
        from pyspark.sql import functions as sf

        bounds = spark.createDataFrame(
            [
                (
                    view.identity.topic.name,
                    view.identity.number,
                    view.start,
                    self.positions[place],
                )
                for place, view in self._found.items()
            ],
            "topic string, partition int, start long, upto long",
        )
        topics = bounds.select("topic").distinct()
        zone = (
            sf.when(sf.col("start").isNull() | (sf.col("offset") >= sf.col("upto")), _AHEAD)
            .when(sf.col("offset") < sf.col("start"), _BELOW)
            .otherwise(_IN)
        )
        return (
            rows.join(sf.broadcast(topics), "topic", "left_semi")
            .join(sf.broadcast(bounds), ["topic", "partition"], "left")
            .withColumn("zone", zone)
            .drop("start", "upto")
        )

    def _ahead(self, sums: Mapping[tuple[str, str, int, int], Sums]) -> Iterator[Finding]:
        places: dict[tuple[str, int], list[Sums]] = {}
        for (zone, topic, number, _), one in sums.items():
            if zone == _AHEAD:
                places.setdefault((topic, number), []).append(one)
        for (topic, number), found in sorted(places.items()):
            yield Finding(
                kinds.LAKE_AHEAD,
                topic,
                number,
                min(one.first_offset for one in found),
                max(one.last_offset for one in found),
                sum(one.rows for one in found),
                "the table's position does not cover these rows",
            )

    def _below(
        self, lake: "DataFrame", sums: Mapping[tuple[str, str, int, int], Sums]
    ) -> Iterator[Finding]:
        """Find duplicates only, in the range that retention has removed from the log."""
        from pyspark.sql import functions as sf

        if not any(zone == _BELOW for zone, *_ in sums):
            return
        twice = (
            lake.where(sf.col("zone") == _BELOW)
            .groupBy("topic", "partition", "offset")
            .agg(sf.count("*").alias("in_lake"))
            .where("in_lake > 1")
            .withColumn("kind", sf.lit(kinds.LAKE_DUPLICATE))
        )
        yield from _runs(twice)

    def _row_by_row(
        self, spark: "SparkSession", log: "DataFrame", lake: "DataFrame", blocks: set[BlockKey]
    ) -> Iterator[Finding]:
        from pyspark.sql import functions as sf

        wanted = sf.broadcast(
            spark.createDataFrame(sorted(blocks), "topic string, partition int, block long")
        )
        on = ["topic", "partition", "block"]
        ours = _by_offset(
            log.where("damage is null").join(wanted, on, "left_semi"), "in_log", "log"
        )
        theirs = _by_offset(
            lake.where(sf.col("zone") == _IN).join(wanted, on, "left_semi"), "in_lake", "lake"
        )
        kind = (
            sf.when(sf.col("in_lake").isNull(), kinds.LAKE_MISSING)
            .when(sf.col("in_log").isNull(), kinds.LAKE_UNKNOWN)
            .when(sf.col("in_lake") > sf.col("in_log"), kinds.LAKE_DUPLICATE)
            .when(sf.col("lowest_log") != sf.col("lowest_lake"), kinds.LAKE_DIFFERENT)
        )
        rows = ours.join(theirs, ["topic", "partition", "offset"], "full_outer")
        for one in _runs(rows.withColumn("kind", kind).where("kind is not null")):
            relabelled = self._excused(one)
            if relabelled is not None:
                yield relabelled

    def _excused(self, one: Finding) -> Finding | None:
        """Return the kind of a finding, given compaction and damage in the log."""
        if one.kind != kinds.LAKE_UNKNOWN:
            return one
        if any(
            bad[1:3] == one[1:3]
            and bad.first_offset <= one.first_offset
            and one.last_offset <= bad.last_offset
            for bad in self.damaged
        ):
            return None  # the log had it; the damage is a separate finding
        view = self._found[f"{one.topic}/{one.partition}"]
        if view.identity.partition_id in self._compacted:
            return one._replace(kind=kinds.COMPACTED_SINCE)
        return one


def _digest(sums: Sums | None) -> tuple[int, int, int]:
    return (0, 0, 0) if sums is None else sums[:3]


def _sum_columns() -> "list[Column]":
    from pyspark.sql import functions as sf

    # In halves, so that the sum of each stays below 2^63.
    low = sf.col("hash").bitwiseAND(sf.lit(_LOW_32))
    high = sf.shiftrightunsigned("hash", 32)
    return [
        sf.count("hash").alias("rows"),
        sf.sum(low).alias("low"),
        sf.sum(high).alias("high"),
        sf.min("offset").alias("first"),
        sf.max("offset").alias("last"),
    ]


def _log_sums(log: "DataFrame") -> tuple[dict[BlockKey, Sums], list[Finding]]:
    """Return the log's sums by block, and the batches that could not be decoded."""
    from pyspark.sql import functions as sf

    damage = sf.collect_list(
        sf.when(sf.col("damage").isNotNull(), sf.struct("offset", "last_offset", "damage"))
    )
    # Damaged batches have no hash, and add nothing to the sums.
    hashed = log.withColumn("hash", sf.when(sf.col("damage").isNull(), sf.col("hash")))
    found = hashed.groupBy("topic", "partition", "block").agg(
        *_sum_columns(), damage.alias("bad")
    )
    sums: dict[BlockKey, Sums] = {}
    damaged: list[Finding] = []
    for row in found.toLocalIterator():
        damaged += [
            Finding(
                kinds.DAMAGED,
                row.topic,
                row.partition,
                one.offset,
                one.last_offset,
                1,
                one.damage,
            )
            for one in row.bad
        ]
        if row.rows:
            key = row.topic, row.partition, row.block
            sums[key] = Sums(row.rows, row.low, row.high, row["first"], row["last"])
    return sums, damaged


def _lake_sums(lake: "DataFrame") -> dict[tuple[str, str, int, int], Sums]:
    grouped = lake.groupBy("zone", "topic", "partition", "block").agg(*_sum_columns())
    return {
        (row.zone, row.topic, row.partition, row.block): Sums(
            row.rows, row.low, row.high, row["first"], row["last"]
        )
        for row in grouped.toLocalIterator()
    }


def _by_offset(rows: "DataFrame", count: str, side: str) -> "DataFrame":
    from pyspark.sql import functions as sf

    return rows.groupBy("topic", "partition", "offset").agg(
        sf.count("*").alias(count), sf.min("hash").alias(f"lowest_{side}")
    )


_EXAMPLES: Final[Mapping[str, str]] = {
    kinds.LAKE_MISSING: "the log has them, the table does not",
    kinds.LAKE_UNKNOWN: "the table has them, the log does not",
    kinds.LAKE_DUPLICATE: "more than one row each",
    kinds.LAKE_DIFFERENT: "the hashes of the rows differ",
}


def _runs(rows: "DataFrame") -> Iterator[Finding]:
    """Yield runs of consecutive offsets as one finding each."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    in_order = Window.partitionBy("topic", "partition", "kind").orderBy("offset")
    runs = (
        rows.withColumn("run", sf.col("offset") - sf.row_number().over(in_order))
        .groupBy("topic", "partition", "kind", "run")
        .agg(
            sf.min("offset").alias("first"),
            sf.max("offset").alias("last"),
            sf.count("*").alias("rows"),
        )
        .orderBy("topic", "partition", "kind", "first")
        .limit(RUNS_MAX)
    )
    for row in runs.collect():
        yield Finding(
            row.kind,
            row.topic,
            row.partition,
            row["first"],
            row["last"],
            row.rows,
            _EXAMPLES[row.kind],
        )
