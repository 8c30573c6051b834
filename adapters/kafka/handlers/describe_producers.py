"""DescribeProducers: API key 61, version 0 (KIP-664).

Idempotent producers of partitions, and the first offsets of their open transactions there.
"""

from typing import Final, TypeAlias

from kafka.protocol.admin import DescribeProducersRequest, DescribeProducersResponse

from adapters.kafka.access.authorization import topic_for
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.session import Session
from features.dedup import NO_SEQUENCE, SEQUENCE_MODULUS, ActiveProducer
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, public_text
from gateway.partition import Partition

API_KEY: Final = 61
VERSIONS: Final = range(1)

NO_TRANSACTION: Final = -1

_Topic: TypeAlias = DescribeProducersResponse.TopicResponse
_Partition: TypeAlias = DescribeProducersResponse.TopicResponse.PartitionResponse
_Producer: TypeAlias = DescribeProducersResponse.TopicResponse.PartitionResponse.ProducerState


def handle(
    request: DescribeProducersRequest, session: Session, version: int
) -> DescribeProducersResponse:
    """Return the idempotent producers that each partition tracks."""
    topics = [
        _Topic(
            name=topic.name,
            partitions=[_answer(session, topic.name, n) for n in topic.partition_indexes],
        )
        for topic in request.topics
    ]
    return DescribeProducersResponse(version=version, topics=topics)


def _answer(session: Session, topic_name: str, number: int) -> _Partition:
    code, message, producers = ErrorCode.NONE, None, []
    try:
        topic = topic_for(session, topic_name, Operation.READ)
        producers = _producers(session.node.broker.partition(topic, number))
    except GatewayError as error:
        code, message = code_of(error), public_text(error)
    return _Partition(
        partition_index=number,
        error_code=code,
        error_message=message,
        active_producers=producers,
    )


def _producers(partition: Partition) -> list[_Producer]:
    if partition.producers is None:
        return []
    transactions = partition.transactions
    open_offsets = {} if transactions is None else transactions.open
    return [
        _Producer(
            producer_id=one.producer_id,
            producer_epoch=one.epoch,
            last_sequence=_last_sequence(one),
            last_timestamp=one.used_unix_ms,
            coordinator_epoch=one.coordinator_epoch,
            current_txn_start_offset=open_offsets.get(one.producer_id, NO_TRANSACTION),
        )
        for one in partition.producers.active()
    ]


def _last_sequence(producer: ActiveProducer) -> int:
    batch = producer.last_batch
    return NO_SEQUENCE if batch is None else (batch.next_sequence - 1) % SEQUENCE_MODULUS
