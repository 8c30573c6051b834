"""ListTransactions: API key 66, versions 0 to 2 (KIP-664).

v1  a filter by duration (KIP-994)
v2  a filter by name (KIP-1152)

It lists the transactional ids that this node coordinates, in all states, without those that the
session may not describe. The pattern of names is one of RE2's, and must match the whole name. The
ids are looked at in slices, between which the loop serves others.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from kafka.protocol.admin import ListTransactionsRequest, ListTransactionsResponse

from adapters.kafka.codecs import schema_codec
from adapters.kafka.errors import ErrorCode
from adapters.kafka.node.large_requests import SLICE_ELEMENTS, yield_to_loop
from adapters.kafka.session import Session
from features.transactions import State, Transaction
from gateway.auth.ports import Operation, ResourceType
from gateway.errors import InvalidPattern
from gateway.groups.consumer.patterns import compile_pattern

API_KEY: Final = 66
VERSIONS: Final = range(3)
DURATION_FROM: Final = 1
PATTERN_FROM: Final = 2

_STATES: Final = frozenset(state.kafka_name for state in State)
_Answer: TypeAlias = ListTransactionsResponse.TransactionState


async def handle(
    request: ListTransactionsRequest, session: Session, version: int
) -> ListTransactionsResponse | bytearray:
    """Return the transactional ids that pass all filters, and the unknown states among them."""
    code, found = ErrorCode.NONE, []
    try:
        is_wanted = _filter(request, session, version)
    except InvalidPattern:
        code = ErrorCode.INVALID_REGULAR_EXPRESSION
    else:
        found = await _list(session, is_wanted)
    response = ListTransactionsResponse(
        version=version,
        error_code=code,
        unknown_state_filters=[s for s in request.state_filters if s not in _STATES],
        transaction_states=found,
    )
    if len(found) <= SLICE_ELEMENTS:
        return response
    thread = session.node.large_request_thread
    return await thread.run(schema_codec.encode_response, response, version)


async def _list(
    session: Session, is_wanted: Callable[[str, Transaction], bool]
) -> list[_Answer]:
    found = []
    for number, (where, value) in enumerate(list(session.node.transactions.values.items())):
        if number % SLICE_ELEMENTS == SLICE_ELEMENTS - 1:
            await yield_to_loop()
        namespace, name = where
        if namespace == session.namespace and is_wanted(name, value):
            found.append(
                _Answer(
                    transactional_id=name,
                    producer_id=value.producer_id,
                    transaction_state=value.state.kafka_name,
                )
            )
    return found


def _filter(
    request: ListTransactionsRequest, session: Session, version: int
) -> Callable[[str, Transaction], bool]:
    """Return the predicate of a request. Error: ``InvalidPattern``."""
    states = set(request.state_filters)
    producer_ids = set(request.producer_id_filters)
    duration_ms = request.duration_filter if version >= DURATION_FROM else -1
    pattern = request.transactional_id_pattern if version >= PATTERN_FROM else None
    matches = compile_pattern(pattern) if pattern else None
    now_unix_ms = session.node.clock.unix_ms()

    def is_wanted(name: str, value: Transaction) -> bool:
        if states and value.state.kafka_name not in states:
            return False
        if producer_ids and value.producer_id not in producer_ids:
            return False
        if duration_ms >= 0:
            started_unix_ms = value.started_unix_ms
            if started_unix_ms < 0 or now_unix_ms - started_unix_ms <= duration_ms:
                return False
        if matches is not None and not matches(name):
            return False
        return session.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)

    return is_wanted
