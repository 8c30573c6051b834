"""Sums of a report's rows: by step of time, by topic, by size, and in total.

The sums take two steps. Each row goes into the sketches of one cell of step, topic, protocol and
size; then the sketches of cells are merged into those of larger groups. In one step Spark would
read each row once for each of the four groupings, which took three times the processor time.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # a dry run needs no Spark
    from pyspark.sql import Column, DataFrame, Row

SIZE_BINS: Final = "size_bin"
_CELL: Final = ("bucket", "topic", "protocol", SIZE_BINS)
_MEASURED: Final = ("size_bytes", "late_ms", "overdue_ms")
_PERCENTILES: Final = (0.5, 0.95, 0.99)
_KEYS_BITS: Final = 12  # of the sketch of keys: an error of 1.6 %
_RANKS: Final = 1_024  # of the sketch of a percentile: an error of its rank of 0.3 % at most


def aggregated(rows: "DataFrame", bucket_ms: int) -> "list[Row]":
    """Return sums by bucket, topic and protocol; by topic and protocol; by size; and in total."""
    from pyspark.sql import functions as sf

    exponent = sf.when(
        sf.col("size_bytes") > 0, sf.floor(sf.log2(sf.col("size_bytes")))
    ).otherwise(-1)
    bucket = sf.col("unix_ms") - sf.pmod("unix_ms", sf.lit(bucket_ms))
    named = rows.withColumn("bucket", bucket).withColumn(
        SIZE_BINS, sf.when(sf.col("size_bytes").isNotNull(), exponent)
    )
    sets = [
        ["bucket", "topic", "protocol"],
        ["topic", "protocol"],
        [SIZE_BINS, "protocol"],
        [],
    ]
    figures = (
        _cells(named)
        .groupingSets(sets, *_CELL)
        .agg(
            sf.sum("records").alias("records"),
            sf.sum("decoded").alias("decoded"),
            sf.sum("stored").alias("stored"),
            sf.sum("batches").alias("batches"),
            sf.hll_sketch_estimate(sf.hll_union_agg("keys")).alias("keys"),
            sf.max("size_max").alias("size_max"),
            sf.sum("undecodable").alias("undecodable"),
            *map(_percentiles, _MEASURED),
            sf.grouping_id().alias("grouping"),
        )
        .where("records > 0 or undecodable > 0")
    )
    return figures.collect()


def _cells(named: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as sf

    return named.groupBy(*_CELL).agg(
        sf.count("size_bytes").alias("records"),
        sf.sum("size_bytes").alias("decoded"),
        sf.sum("stored_bytes").alias("stored"),
        sf.sum("batches").alias("batches"),
        sf.hll_sketch_agg("key", _KEYS_BITS).alias("keys"),
        sf.max("size_bytes").alias("size_max"),
        sf.sum("undecodable").alias("undecodable"),
        *[sf.count(name).alias(f"{name}_n") for name in _MEASURED],
        *[sf.kll_sketch_agg_bigint(name, sf.lit(_RANKS)).alias(name) for name in _MEASURED],
    )


def _percentiles(name: str) -> "Column":
    """Return the column of a measure's percentiles, null without measurements."""
    from pyspark.sql import functions as sf

    wanted = sf.array(*map(sf.lit, _PERCENTILES))
    found = sf.kll_sketch_get_quantile_bigint(sf.kll_merge_agg_bigint(name), wanted)
    return sf.when(sf.sum(f"{name}_n") > 0, found).alias(f"{name}_p")
