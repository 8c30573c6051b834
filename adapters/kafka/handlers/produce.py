"""Produce: API key 0, versions 3 to 13.

v3   transactional_id; exactly one v2 batch per partition
v5   log_start_offset in the response (KIP-107)
v7   zstd (KIP-110)
v8   error messages in the response (KIP-467)
v9   flexible encoding (KIP-482)
v10  the current leader beside NOT_LEADER_OR_FOLLOWER, with its address (KIP-951)
v11  TRANSACTION_ABORTABLE (KIP-890)
v12  a transactional batch adds its partition to the transaction (KIP-890)
v13  topic ids (KIP-516)

In topics with ``delay.enable`` records with a header ``deliver-at`` in the future are delayed; if
a batch has any, the base offset in the response is -1.

The batches of a request are one atomic append: after a crash all of them exist, or none. A request
of more than ``SLICE_ELEMENTS`` partitions is several appends, one after the other. acks=1 waits as
acks=all does. With acks=0 there is no response, and an error closes the connection. The second
occurrence of a partition in a request is refused, because its sequences cannot be checked.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from adapters.kafka.codecs.produce_codec import (
    ProduceRequest,
    decode_produce_request,
    encode_produce_response,
)
from adapters.kafka.metadata.broker_addresses import other_brokers
from adapters.kafka.node.large_requests import topic_slices, yield_to_loop
from adapters.kafka.producing.batch_appends import (
    Outcomes,
    append_batches,
    join_transaction,
)
from adapters.kafka.producing.produce_results import (
    InvalidAcks,
    check_without_reply,
    encode_slices,
    produce_results,
)
from adapters.kafka.producing.producer_transaction import ProducerTransaction
from adapters.kafka.session import Session
from adapters.kafka.transactions.coordinator import check_transactional_id
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, as_value
from gateway.futures import set_result_if_pending
from gateway.partition import Partition

API_KEY: Final = 0
VERSIONS: Final = range(3, 14)

decode = decode_produce_request


class ProduceReply(Protocol):
    """Reply that the connection passes in; call it with the response, None for acks=0.

    ``guard`` runs callbacks of the storage; an exception closes this connection only.
    """

    @property
    def throttle_ms(self) -> int:
        """Throttle time of the response, by the client's quotas."""

    def __call__(self, body: bytes | None) -> None:
        """Send the response; called once."""

    def guard(self, work: Callable[..., None], *args: Any) -> None:  # noqa: ANN401 - passed on
        """Call ``work(*args)``; an exception closes the connection."""


def handle(
    request: ProduceRequest, session: Session, version: int, reply: ProduceReply
) -> bool:
    """Append the valid batches of the request; respond when they are durable.

    Return True, with nothing done, when their transaction has to be joined first, at another node:
    ``handle_large`` follows.
    """
    outcomes: Outcomes = []
    done = partial(reply.guard, _answer, session, outcomes, version, request.acks, reply)
    transaction = _transaction(request, session, version)
    if isinstance(transaction, ProducerTransaction) and transaction.must_join:
        return True
    append_batches(session, request.topics, transaction, version, outcomes, (), done)
    return False


async def handle_large(
    request: ProduceRequest, session: Session, version: int, reply: ProduceReply
) -> None:
    """Append slices of the request one after the other, each atomically; then respond."""
    transaction = _transaction(request, session, version)
    loop = asyncio.get_running_loop()
    seen: set[Partition] = set()
    parts: list[tuple[Outcomes, asyncio.Future[GatewayError | None]]] = []
    for topics in topic_slices(request.topics):
        outcomes: Outcomes = []
        kept: asyncio.Future[GatewayError | None] = loop.create_future()
        parts.append((outcomes, kept))
        if isinstance(transaction, ProducerTransaction) and transaction.must_join:
            transaction = await join_transaction(session, topics, transaction)
        append_batches(
            session,
            topics,
            transaction,
            version,
            outcomes,
            seen,
            partial(set_result_if_pending, kept),
        )
        seen.update(
            outcome.partition
            for _, results in outcomes
            for _, outcome in results
            if not isinstance(outcome, GatewayError)
        )
        await yield_to_loop()
    done = [(outcomes, await kept) for outcomes, kept in parts]
    parts.clear()
    if request.acks == 0:
        for outcomes, failure in done:
            check_without_reply(outcomes, failure)
        reply(None)
        return
    reply(
        await session.node.large_request_thread.run(
            encode_slices,
            version,
            request.topics,
            done,
            other_brokers(session),
            reply.throttle_ms,
        )
    )


def _transaction(
    request: ProduceRequest, session: Session, version: int
) -> ProducerTransaction | GatewayError | None:
    """Return the transaction of a request, if it has one, or the error that refuses it."""
    if request.acks not in {-1, 0, 1}:
        return InvalidAcks(f"acks is {request.acks}, not -1, 0 or 1")
    name = request.transactional_id
    if name is None:
        return None
    try:
        check_transactional_id(session, Operation.WRITE, name)
    except GatewayError as error:
        return as_value(error)
    return ProducerTransaction(session, name, version)


def _answer(  # noqa: PLR0917 - bound to each request
    session: Session,
    outcomes: Outcomes,
    version: int,
    acks: int,
    reply: ProduceReply,
    failure: GatewayError | None,
) -> None:
    if acks == 0:
        check_without_reply(outcomes, failure)
        reply(None)
        return
    results = produce_results(outcomes, failure)
    nodes = other_brokers(session)
    reply(encode_produce_response(version, results, nodes, reply.throttle_ms))
