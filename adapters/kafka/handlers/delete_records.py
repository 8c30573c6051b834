"""DeleteRecords: API key 21, versions 0 to 2.

v2  flexible encoding (KIP-482)

The response is sent when the new log start is durable by the flush policy. The timeout is
ignored: nothing waits for other nodes.
"""

from typing import Final, TypeAlias

from kafka.protocol.admin import DeleteRecordsRequest, DeleteRecordsResponse

from adapters.kafka.access.authorization import ordinary_topic_for
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.broker import Broker
from gateway.errors import GatewayError
from gateway.futures import await_done
from gateway.partition import Partition

API_KEY: Final = 21
VERSIONS: Final = range(3)

HIGH_WATERMARK: Final = -1  # all records
NO_LOW_WATERMARK: Final = -1

_Topic: TypeAlias = DeleteRecordsResponse.DeleteRecordsTopicResult
_Partition: TypeAlias = (
    DeleteRecordsResponse.DeleteRecordsTopicResult.DeleteRecordsPartitionResult
)


async def handle(
    request: DeleteRecordsRequest, session: Session, version: int
) -> DeleteRecordsResponse:
    """Move the log start of partitions up to the requested offsets."""
    topics = []
    for topic in request.topics:
        results = [
            await _answer(session, topic.name, asked.partition_index, asked.offset)
            for asked in topic.partitions
        ]
        topics.append(_Topic(name=topic.name, partitions=results))
    return DeleteRecordsResponse(version=version, topics=topics)


async def _answer(session: Session, topic_name: str, number: int, offset: int) -> _Partition:
    code, low_watermark = ErrorCode.NONE, NO_LOW_WATERMARK
    broker = session.node.broker
    try:
        topic = ordinary_topic_for(session, topic_name, Operation.DELETE)
        partition = broker.partition(topic, number)
        await truncate(
            broker, partition, partition.high_watermark if offset == HIGH_WATERMARK else offset
        )
        low_watermark = partition.log_start_offset
    except GatewayError as error:
        code = code_of(error)
    return _Partition(partition_index=number, low_watermark=low_watermark, error_code=code)


async def truncate(broker: Broker, partition: Partition, offset: int) -> None:
    """Delete the records below ``offset``; return when that is durable.

    Errors: ``OffsetOutOfRange``, ``StorageUnavailable``.
    """
    await await_done(lambda on_done: broker.truncate_before(partition, offset, on_done))
