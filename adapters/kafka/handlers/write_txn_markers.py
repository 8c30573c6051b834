"""WriteTxnMarkers: API key 27, versions 1 to 2.

v1  flexible encoding (KIP-482)
v2  version of the transaction protocol, which says whether markers have an epoch of their own
    (KIP-1228)

For operators: ``kafka-transactions abort`` ends a hanging transaction by it (KIP-664). It needs
ALTER or CLUSTER_ACTION on the cluster. A marker that was written before is no error. All markers
of a producer are one atomic append; the response is sent when they are durable.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, TypeAlias

from kafka.protocol.producer import WriteTxnMarkersRequest, WriteTxnMarkersResponse

from adapters.kafka.access.authorization import check_cluster
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.metadata.topic_lookup import resolve_topic
from adapters.kafka.node.large_requests import SliceCounter, yield_to_loop
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, StorageUnavailable, TopicNotFound, as_value
from gateway.futures import set_result_if_pending
from gateway.partition import Partition
from gateway.records.markers import Marker
from gateway.writer import Write

API_KEY: Final = 27
VERSIONS: Final = range(1, 3)

_Marker: TypeAlias = WriteTxnMarkersRequest.WritableTxnMarker
_Result: TypeAlias = WriteTxnMarkersResponse.WritableTxnMarkerResult
_Topic: TypeAlias = WriteTxnMarkersResponse.WritableTxnMarkerResult.WritableTxnMarkerTopicResult
_Partition: TypeAlias = (
    WriteTxnMarkersResponse.WritableTxnMarkerResult.WritableTxnMarkerTopicResult
).WritableTxnMarkerPartitionResult

_Codes: TypeAlias = dict[tuple[str, int], ErrorCode]


async def handle(
    request: WriteTxnMarkersRequest, session: Session, version: int
) -> WriteTxnMarkersResponse:
    """End transactions in partitions; return an error code for each."""
    results = [await _answer(session, marker) for marker in request.markers]
    return WriteTxnMarkersResponse(version=version, markers=results)


async def _answer(session: Session, asked: _Marker) -> _Result:
    codes: _Codes = {}
    pairs = [
        (topic.name, number) for topic in asked.topics for number in topic.partition_indexes
    ]
    try:
        _authorize(session)
    except GatewayError as error:
        codes = dict.fromkeys(pairs, code_of(error))
    else:
        slice_counter = SliceCounter()
        todo: list[tuple[str, int]] = []
        for pair in dict.fromkeys(pairs):
            todo.append(pair)
            if slice_counter.is_over():
                codes |= await _write(session, asked, todo)
                todo = []
                await yield_to_loop()
        codes |= await _write(session, asked, todo)
    topics = [
        _Topic(
            name=topic.name,
            partitions=[
                _Partition(partition_index=number, error_code=codes[topic.name, number])
                for number in topic.partition_indexes
            ],
        )
        for topic in asked.topics
    ]
    return _Result(producer_id=asked.producer_id, topics=topics)


def _authorize(session: Session) -> None:
    try:
        check_cluster(session, Operation.ALTER)
    except GatewayError:
        check_cluster(session, Operation.CLUSTER_ACTION)


async def _write(session: Session, asked: _Marker, pairs: Sequence[tuple[str, int]]) -> _Codes:
    """Append markers to different partitions, and return when they are durable."""
    codes: _Codes = {}
    writes: list[Write] = []
    marker = Marker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
    )
    broker = session.node.broker
    for pair in pairs:
        codes[pair] = ErrorCode.NONE
        try:
            write = broker.prepare_marker(
                _partition(session, *pair),
                marker,
                transaction_version=asked.transaction_version or 0,
            )
        except GatewayError as error:
            codes[pair] = code_of(error)
        else:
            if write is not None:
                writes.append(write)
    done: asyncio.Future[StorageUnavailable | None] = asyncio.get_running_loop().create_future()
    on_done = partial(set_result_if_pending, done)
    failure: GatewayError | None
    try:
        if writes:
            broker.append(writes, on_done)
        else:
            broker.after_pending(on_done)  # one that was sent before may not be durable yet
        failure = await done
    except GatewayError as error:
        failure = as_value(error)
    if failure is not None:
        codes = {pair: code or code_of(failure) for pair, code in codes.items()}
    return codes


def _partition(session: Session, topic_name: str, number: int) -> Partition:
    topic = resolve_topic(session, topic_name)
    if topic.is_internal:
        raise TopicNotFound(f"{topic_name} is the gateway's own")
    return session.node.broker.partition(topic, number)
