"""Spark with its own Kafka source and sink, in a process of its own: it needs jars at the start.

``python -m tests.pipeline.connector.job BOOTSTRAP JARS FOLDER SOURCE SINK STREAMED PATTERN``
prints what it has read as JSON.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

HEADER_ROWS = 100
SINK_ROWS = 3_000
MORE_ROWS = 700
PER_TRIGGER = 900


def main(arguments: list[str]) -> None:
    """Read, write and stream."""
    bootstrap, jars, folder, source, sink, streamed, pattern = arguments
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(str(path) for path in Path(jars).glob("*.jar")))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    job = _Job(spark, bootstrap, Path(folder))
    found: dict[str, Any] = {"batch": job.batch(source)}
    found["between"] = job.between(source)
    found["by_time"] = job.by_time(source)
    found["pattern"] = job.pattern(pattern)
    job.write(sink, range(SINK_ROWS))
    found["batches"] = [job.stream(sink, streamed)]
    job.write(sink, range(SINK_ROWS, SINK_ROWS + MORE_ROWS))
    found["batches"].append(job.stream(sink, streamed))
    found["batches"].append(job.stream(sink, streamed))
    found["streamed"] = sorted(
        int(row.value) for row in job.read(streamed).select("value").collect()
    )
    sys.stdout.write(json.dumps(found))
    spark.stop()


class _Job:
    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self._spark = spark
        self._kafka = {"kafka.bootstrap.servers": bootstrap}
        self._folder = folder

    def read(self, topic: str, **options: str) -> DataFrame:
        reader = self._spark.read.format("kafka").options(**self._kafka)
        return reader.options(subscribe=topic, **options).load()

    def batch(self, topic: str) -> list[Mapping[str, Any]]:
        frame = self.read(topic, includeHeaders="true").orderBy("partition", "offset")
        return [
            {
                "partition": row.partition,
                "offset": row.offset,
                "key": None if row.key is None else row.key.decode(),
                "value": row.value.decode(),
                "unix_ms": int(row.timestamp.timestamp() * 1_000 + 0.5),
                "headers": [[one.key, bytes(one.value).decode()] for one in row.headers or ()],
            }
            for row in frame.collect()
        ]

    def between(self, topic: str) -> int:
        """Count what lies between offsets of partition 0."""
        return self.read(
            topic,
            startingOffsets=json.dumps({topic: {"0": 10, "1": 0, "2": 0}}),
            endingOffsets=json.dumps({topic: {"0": 30, "1": 0, "2": 0}}),
        ).count()

    def by_time(self, topic: str) -> int:
        """Count what is of the second 1_700_000_001 or later."""
        return self.read(
            topic,
            startingOffsetsByTimestamp=json.dumps(
                {topic: dict.fromkeys("012", 1_700_000_001_000)}
            ),
        ).count()

    def pattern(self, pattern: str) -> dict[str, int]:
        reader = self._spark.read.format("kafka").options(**self._kafka)
        frame = reader.option("subscribePattern", pattern).load()
        return {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()}

    def write(self, topic: str, numbers: range) -> None:
        """Write numbers, with keys, and headers on the first ones."""
        ids = self._spark.range(numbers.start, numbers.stop, numPartitions=3)
        header = sf.struct(
            sf.lit("trace").alias("key"),
            sf.concat(sf.lit("t"), "id").cast("binary").alias("value"),
        )
        frame = ids.select(
            sf.concat(sf.lit("k"), sf.col("id") % 11).alias("key"),
            sf.col("id").cast("string").alias("value"),
            sf.when(sf.col("id") < HEADER_ROWS, sf.array(header)).alias("headers"),
        )
        writer = frame.write.format("kafka").options(**self._kafka)
        writer.option("topic", topic).option("includeHeaders", "true").save()

    def stream(self, source: str, sink: str) -> int:
        """Bring what is there from topic to topic, and return in how many batches."""
        reader = self._spark.readStream.format("kafka").options(**self._kafka)
        query = (
            reader.option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(PER_TRIGGER))
            .option("includeHeaders", "true")
            .load()
            .select("key", "value", "headers")
            .writeStream.format("kafka")
            .options(**self._kafka)
            .option("topic", sink)
            .option("includeHeaders", "true")
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sum(1 for one in query.recentProgress if one.numInputRows)


if __name__ == "__main__":
    main(sys.argv[1:])
