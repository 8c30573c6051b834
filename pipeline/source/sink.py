"""``df.write.format("headgate")`` and ``writeStream``: rows appended through the Kafka endpoint.

Delivery is at least once: a task or a micro-batch that is repeated appends its rows again. Each
record has the header ``headgate.sink``, ``<writer>/<batch>/<task>/<row>``, which is the same then,
if the query gives the same rows in the same order: a reader can drop duplicates.

The client is librdkafka: it is the only stock client that distinguishes a header without a value
from an empty one, and accepts a record without key and value.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaException, Message, Producer
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from gateway.errors import GatewayError
from pipeline.log.options import BadOption
from pipeline.source.sink_options import SINK_HEADER, SinkOptions

DELIVERY_S_MAX: Final = 120
_QUEUED_KIB: Final = 65_536  # of a task, sent to the endpoint and not answered
_RECORD_BYTES_MAX: Final = 128 * 1024 * 1024  # the topic's own limit applies
_POLL_S: Final = 0.5
_NO_PARTITION: Final = -1  # librdkafka's: by the key
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


class NotWritten(GatewayError):
    """The endpoint did not accept records; the task fails, and Spark may repeat it."""


@dataclass
class Written(WriterCommitMessage):
    """Result of a task's writes."""

    row_count: int


class _Sink:
    """Common part of batch and stream sinks."""

    def __init__(self, options: SinkOptions) -> None:
        try:
            Producer(_client_config(options))
        except KafkaException as error:
            raise BadOption(f"kafka.*: {error.args[0].str()}") from None
        self._options = options._replace(writer_id=options.writer_id or uuid.uuid4().hex)
        self._names_itself = bool(options.writer_id)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Append a task's rows; when it returns, all are stored. Error: ``NotWritten``."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty(_QUERY_ID)
        writer = self._options.writer_id if self._names_itself or not query else query
        batch = context.getLocalProperty(_BATCH_ID) or "0"
        mark = f"{writer}/{batch}/{context.partitionId()}/"
        sender = _Sender(self._options, mark)
        for rows in iterator:
            sender.send(rows)
        return Written(sender.finish())


class BatchSink(_Sink, DataSourceArrowWriter):
    """Sink for a frame."""


class StreamSink(_Sink, DataSourceStreamArrowWriter):
    """Sink for micro-batches. A commit does nothing, since written rows are stored."""


class _Sender:
    """Producer of one task."""

    def __init__(self, options: SinkOptions, mark: str) -> None:
        self._producer = Producer(_client_config(options))
        self._topic = options.topic
        self._mark = mark
        self._count = 0
        self._failure = ""

    def send(self, rows: pa.RecordBatch) -> None:
        """Send rows. Error: ``NotWritten``, of these or of earlier ones."""
        columns = _SinkColumns(rows, self._topic)
        for index in range(rows.num_rows):
            record = columns.record(index)
            record["headers"] = [
                *(record["headers"] or ()),
                (SINK_HEADER, f"{self._mark}{self._count}".encode()),
            ]
            self._produce(record)
            self._count += 1
            self._producer.poll(0)
            if self._failure:
                raise NotWritten(self._failure)

    def finish(self) -> int:
        """Wait until all rows are stored; return their number. Error: ``NotWritten``."""
        left = self._producer.flush(DELIVERY_S_MAX + 10)
        if self._failure:
            raise NotWritten(self._failure)
        if left:
            raise NotWritten(f"{left} records were not answered in {DELIVERY_S_MAX} s")
        return self._count

    def _produce(self, record: dict[str, Any]) -> None:
        while True:
            try:
                self._producer.produce(**record, on_delivery=self._on_delivery)
            except BufferError:  # full: wait for answers
                self._producer.poll(_POLL_S)
                if self._failure:
                    return
            except (KafkaException, TypeError, ValueError) as error:
                self._failure = f"row {self._count} to {record['topic']}: {error}"
                return
            else:
                return

    def _on_delivery(self, error: object, message: Message) -> None:
        if error is not None and not self._failure:
            self._failure = f"{message.topic()}: {error}"


class _SinkColumns:
    """Arrow columns as Python values, which the client takes record by record."""

    def __init__(self, rows: pa.RecordBatch, topic: str) -> None:
        named = dict(zip(rows.schema.names, rows.columns, strict=True))
        count = rows.num_rows
        self._topics = [topic] * count if topic else named["topic"].to_pylist()
        self._keys = _data(named.get("key"), count)
        self._values = _data(named.get("value"), count)
        self._headers = _values(named.get("headers"), count)
        self._partitions = _values(named.get("partition"), count)
        self._times = _values(_unix_ms(named.get("timestamp")), count)

    def record(self, index: int) -> dict[str, Any]:
        headers, partition = self._headers[index], self._partitions[index]
        if headers is not None:
            headers = [tuple(one.values()) for one in headers]
        return {
            "topic": self._topics[index],
            "key": self._keys[index],
            "value": self._values[index],
            "headers": headers,
            "partition": _NO_PARTITION if partition is None else partition,
            "timestamp": self._times[index] or 0,  # the present
        }


def _values(column: pa.Array | None, count: int) -> list[Any]:
    found: list[Any] = [None] * count if column is None else column.to_pylist()
    return found


def _data(column: pa.Array | None, count: int) -> list[Any]:
    return _values(None if column is None else column.cast(pa.binary()), count)


def _unix_ms(column: pa.Array | None) -> pa.Array | None:
    """Return times in unix ms; numbers are taken as such."""
    if column is None or not pa.types.is_timestamp(column.type):
        return column
    return column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())


def _client_config(options: SinkOptions) -> dict[str, Any]:
    return {
        "client.id": "headgate-spark",
        "log_level": 0,  # calls return errors; the library would print them, too
        "linger.ms": 20,
        "compression.type": "lz4",
        "message.max.bytes": _RECORD_BYTES_MAX,
        "message.timeout.ms": DELIVERY_S_MAX * 1_000,
        "queue.buffering.max.kbytes": _QUEUED_KIB,
        "partitioner": "murmur2_random",  # as Java's client, and so Spark's own sink
        **options.client,
        # Options cannot override the sink's guarantees.
        "bootstrap.servers": options.bootstrap,
        "enable.idempotence": True,
    }
