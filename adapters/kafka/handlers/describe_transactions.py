"""DescribeTransactions: API key 65, version 0 (KIP-664)."""

from typing import Final, TypeAlias
from uuid import UUID

from kafka.protocol.admin import DescribeTransactionsRequest, DescribeTransactionsResponse

from adapters.kafka.access.authorization import may_describe
from adapters.kafka.errors import ErrorCode
from adapters.kafka.session import Session
from adapters.kafka.transactions.coordinator import (
    check_transactional_id,
    transaction_code_of,
    transactional_id,
)
from features.transactions import Transaction
from gateway.auth.ports import Operation
from gateway.errors import GatewayError

API_KEY: Final = 65
VERSIONS: Final = range(1)

_State: TypeAlias = DescribeTransactionsResponse.TransactionState
_Topic: TypeAlias = DescribeTransactionsResponse.TransactionState.TopicData


def handle(
    request: DescribeTransactionsRequest, session: Session, version: int
) -> DescribeTransactionsResponse:
    """Return the state of transactional ids; topics that may not be described are left out."""
    return DescribeTransactionsResponse(
        version=version,
        transaction_states=[_answer(session, name) for name in request.transactional_ids],
    )


def _answer(session: Session, name: str) -> _State:
    try:
        check_transactional_id(session, Operation.DESCRIBE, name)
        value = session.node.transactions.find(transactional_id(session, name))
    except GatewayError as error:
        code = transaction_code_of(error)
        return _State(error_code=code, transactional_id=name, transaction_state="", topics=[])
    return _State(
        error_code=ErrorCode.NONE,
        transactional_id=name,
        transaction_state=value.state.kafka_name,
        transaction_timeout_ms=value.timeout_ms,
        transaction_start_time_ms=value.started_unix_ms,
        producer_id=value.producer_id,
        producer_epoch=value.epoch,
        topics=_topics(session, value),
    )


def _topics(session: Session, value: Transaction) -> list[_Topic]:
    numbers: dict[UUID, list[int]] = {}
    for uuid, number in value.partitions:
        numbers.setdefault(uuid, []).append(number)
    found = []
    for uuid, some in numbers.items():
        topic = session.node.topics.by_uuid(uuid)
        if topic is not None and may_describe(session, topic.name.name):
            found.append(_Topic(topic=topic.name.name, partitions=sorted(some)))
    return found
