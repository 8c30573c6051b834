"""AddPartitionsToTxn: API key 24, versions 0 to 3.

v2  PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)
v3  flexible encoding (KIP-482)

Versions 4 and 5 are for brokers, which verify batches with them, and are not served. All partitions
are added, or none: when one cannot be, the others are answered with OPERATION_NOT_ATTEMPTED. What
is added is stored before the first batch of the transaction, and the response does not wait.
A partition may be another node's.
"""

from typing import Any, Final, TypeAlias

from kafka.protocol.producer import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

from adapters.kafka.access.authorization import ordinary_topic_for
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.session import Session
from adapters.kafka.transactions.coordinator import (
    check_transactional_id,
    transaction_code_of,
    transactional_id,
)
from features.transactions import PartitionRef
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, TopicNotFound
from gateway.transactional_writes import check_takes_transactions

API_KEY: Final = 24
VERSIONS: Final = range(4)
FENCED_CODE_FROM: Final = 2

_Topic: TypeAlias = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_Codes: TypeAlias = list[tuple[str, list[tuple[int, ErrorCode]]]]


def handle(
    request: AddPartitionsToTxnRequest, session: Session, version: int
) -> AddPartitionsToTxnResponse:
    """Add partitions to a transaction."""
    topics = request.v3_and_below_topics
    name = request.v3_and_below_transactional_id
    try:
        check_transactional_id(session, Operation.WRITE, name)
        refs, codes = _resolve(session, topics)
        if any(code is not ErrorCode.NONE for _, some in codes for _, code in some):
            return _respond(version, _not_attempted(codes))
        session.node.transactions.add(
            transactional_id(session, name),
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            partitions=refs,
        )
    except GatewayError as error:
        code = transaction_code_of(error, has_fenced_code=version >= FENCED_CODE_FROM)
        codes = [(topic.name, [(n, code) for n in topic.partitions]) for topic in topics]
    return _respond(version, codes)


def _resolve(session: Session, topics: Any) -> tuple[list[PartitionRef], _Codes]:  # noqa: ANN401 - generated
    refs, codes = [], []
    for topic in topics:
        some = []
        for number in topic.partitions:
            code = ErrorCode.NONE
            try:
                found = ordinary_topic_for(session, topic.name, Operation.WRITE)
                check_takes_transactions(found)
                if not 0 <= number < len(found.partition_ids):
                    raise TopicNotFound(f"{topic.name} has no partition {number}")
                refs.append(PartitionRef(found.uuid, number))
            except GatewayError as error:
                code = code_of(error)
            some.append((number, code))
        codes.append((topic.name, some))
    return refs, codes


def _not_attempted(codes: _Codes) -> _Codes:
    skipped = ErrorCode.OPERATION_NOT_ATTEMPTED
    return [
        (name, [(number, skipped if code is ErrorCode.NONE else code) for number, code in some])
        for name, some in codes
    ]


def _respond(version: int, codes: _Codes) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        version=version,
        results_by_topic_v3_and_below=[
            _Topic(
                name=name,
                results_by_partition=[
                    _Topic.AddPartitionsToTxnPartitionResult(
                        partition_index=number, partition_error_code=code
                    )
                    for number, code in some
                ],
            )
            for name, some in codes
        ],
    )
