"""ListOffsets: API key 2, versions 1 to 11.

v1   one offset per partition, with its timestamp
v2   isolation level (KIP-98): read_committed ends at the last stable offset
v4   leader epochs (KIP-320)
v6   flexible encoding (KIP-482)
v7   timestamp -3: the record with the highest timestamp (KIP-734)
v8   timestamp -4: the earliest local offset (KIP-405)
v9   timestamp -5: the latest tiered offset (KIP-1005)
v10  a timeout for reads of remote storage; ignored
v11  timestamp -6: the earliest offset that is not uploaded yet (KIP-1023)

There is no tiered storage as in Kafka: the result of -4 is that of -2, and that of -5 and -6 is
-1, as for a topic without tiered storage in Apache Kafka.
"""

from typing import Final, NamedTuple

from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse

from adapters.kafka.access.authorization import topic_for
from adapters.kafka.errors import ErrorCode, Refused, code_of
from adapters.kafka.metadata.leader_epochs import NO_EPOCH, NO_OFFSET, check_current, epoch_at
from adapters.kafka.node.large_requests import SliceCounter, yield_to_loop
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.broker import Broker
from gateway.errors import GatewayError, as_value
from gateway.partition import Partition
from gateway.topics.manager import Topic

API_KEY: Final = 2
VERSIONS: Final = range(1, 12)

READ_UNCOMMITTED: Final = 0
NO_TIMESTAMP: Final = -1
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
_KNOWN_FROM: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


class ListedOffset(NamedTuple):
    """Offset found for a timestamp; -1 where there is none."""

    offset: int = NO_OFFSET
    timestamp_unix_ms: int = NO_TIMESTAMP
    leader_epoch: int = NO_EPOCH


_NOTHING: Final = ListedOffset()


async def handle(
    request: ListOffsetsRequest, session: Session, version: int
) -> ListOffsetsResponse:
    """Return the offset for each timestamp or special timestamp."""
    seen: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    slice_counter = SliceCounter()
    for topic in request.topics:
        for partition in topic.partitions:
            pair = topic.name, partition.partition_index
            (repeated if pair in seen else seen).add(pair)
            if slice_counter.is_over():
                await yield_to_loop()
    topics = [
        await _answer_topic(
            topic, session, version, request.isolation_level, repeated, slice_counter
        )
        for topic in request.topics
    ]
    return ListOffsetsResponse(version=version, topics=topics)


async def _answer_topic(  # noqa: PLR0917 - a topic of a request, and its slice
    asked: ListOffsetsRequest.ListOffsetsTopic,
    session: Session,
    version: int,
    isolation_level: int,
    repeated: set[tuple[str, int]],
    slice_counter: SliceCounter,
) -> ListOffsetsResponse.ListOffsetsTopicResponse:
    if slice_counter.is_over():
        await yield_to_loop()
    answer = ListOffsetsResponse.ListOffsetsTopicResponse
    topic: Topic | GatewayError
    try:
        topic = topic_for(session, asked.name, Operation.DESCRIBE)
    except GatewayError as error:
        topic = as_value(error)
    partitions = []
    for partition in asked.partitions:
        if slice_counter.is_over():
            await yield_to_loop()
        code, found = ErrorCode.NONE, _NOTHING
        try:
            if (asked.name, partition.partition_index) in repeated:
                raise Refused(ErrorCode.INVALID_REQUEST, "the partition is there twice")
            if isinstance(topic, GatewayError):
                raise topic
            found = await _find(session.node.broker, topic, partition, version, isolation_level)
        except GatewayError as error:
            code = code_of(error)
        partitions.append(
            answer.ListOffsetsPartitionResponse(
                partition_index=partition.partition_index,
                error_code=code,
                timestamp=found.timestamp_unix_ms,
                offset=found.offset,
                leader_epoch=found.leader_epoch,
            )
        )
    return answer(name=asked.name, partitions=partitions)


async def _find(
    broker: Broker,
    topic: Topic,
    asked: ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition,
    version: int,
    isolation_level: int,
) -> ListedOffset:
    timestamp: int = asked.timestamp
    if timestamp < 0 and version < _KNOWN_FROM.get(timestamp, version + 1):
        msg = f"timestamp {timestamp} has no meaning in version {version}"
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, msg)
    partition = broker.partition(topic, asked.partition_index)
    check_current(partition, asked.current_leader_epoch)
    is_committed = isolation_level != READ_UNCOMMITTED
    end = partition.stable_end if is_committed else partition.high_watermark
    if timestamp >= 0:
        return _at(broker, partition, await broker.offset_for_time(partition, timestamp, end))
    if timestamp == MAX_TIMESTAMP:
        return _at(broker, partition, await broker.max_timestamp(partition, end))
    return _special(broker, partition, timestamp, end)


def _at(broker: Broker, partition: Partition, record: tuple[int, ...] | None) -> ListedOffset:
    """Return a record's offset and timestamp with the leader epoch it was written in."""
    if record is None:
        return _NOTHING
    offset, timestamp_unix_ms = record[:2]
    return ListedOffset(offset, timestamp_unix_ms, epoch_at(broker, partition, offset))


def _special(broker: Broker, partition: Partition, timestamp: int, end: int) -> ListedOffset:
    if timestamp == LATEST:
        # At most the high watermark, not the log end: a client that seeks there must not read
        # records that a crash can still remove.
        return ListedOffset(end, NO_TIMESTAMP, partition.leader_epoch)
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        start = partition.log_start_offset
        return ListedOffset(start, NO_TIMESTAMP, epoch_at(broker, partition, start))
    return _NOTHING
