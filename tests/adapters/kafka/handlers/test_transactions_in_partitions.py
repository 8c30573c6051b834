"""WriteTxnMarkers, and ListOffsets and DescribeProducers among transactions."""

from typing import Any, TypeAlias

import pytest
from kafka.protocol.admin import DescribeProducersRequest
from kafka.protocol.producer import WriteTxnMarkersRequest

from adapters.kafka.errors import ErrorCode
from gateway.auth.ports import Operation
from gateway.partition import Partition
from gateway.topics.manager import Topic
from gateway.writer import Write
from tests.adapters.kafka.handlers.handler_fixture import LEADER_EPOCH, Rig, done_of
from tests.adapters.kafka.handlers.test_offsets import list_offset
from tests.support.batches import NOW_UNIX_MS, sample_batch

MarkerOf: TypeAlias = WriteTxnMarkersRequest.WritableTxnMarker
MarkerTopic: TypeAlias = WriteTxnMarkersRequest.WritableTxnMarker.WritableTxnMarkerTopic

COMMITTED = {"isolation_level": 1}
LATEST, MAX_TIMESTAMP = -1, -3
PRODUCER = 41


async def write(
    rig: Rig, topic: Topic, *, number: int = 0, sequence: int = 0, **batch: Any
) -> Partition:
    """Append a transactional batch, and return its partition."""
    broker, partition = rig.node.broker, rig.partition(topic, number)
    data = sample_batch(
        producer_id=PRODUCER,
        producer_epoch=2,
        base_sequence=sequence,
        is_transactional=True,
        **batch,
    )
    found = broker.prepare(partition, data, transaction_version=1)
    assert isinstance(found, Write)
    await done_of(lambda on_done: broker.append([found], on_done))
    return partition


async def end(
    rig: Rig,
    partitions: dict[str, list[int]],
    *,
    is_commit: bool = False,
    epoch: int = 2,
    coordinator_epoch: int = 5,
    version: int = 1,
    **asking: Any,
) -> list[ErrorCode]:
    """Ask for markers; return the error codes in order."""
    more = {"transaction_version": 2} if version > 1 else {}
    marker = MarkerOf(
        producer_id=PRODUCER,
        producer_epoch=epoch,
        transaction_result=is_commit,
        topics=[
            MarkerTopic(name=name, partition_indexes=numbers)
            for name, numbers in partitions.items()
        ],
        coordinator_epoch=coordinator_epoch,
        **more,
    )
    answer = await rig.ask("write_txn_markers", version, markers=[marker], **asking)
    [result] = answer.markers
    assert result.producer_id == PRODUCER
    return [
        ErrorCode(one.error_code.value) for topic in result.topics for one in topic.partitions
    ]


@pytest.mark.parametrize("is_commit", [False, True])
async def test_a_marker_ends_a_transaction(rig: Rig, *, is_commit: bool) -> None:
    topic = await rig.topic("t", 2)
    partition = await write(rig, topic, count=3)
    assert (partition.stable_end, partition.high_watermark) == (0, 3)

    assert await end(rig, {"t": [0, 1]}, is_commit=is_commit) == [ErrorCode.NONE] * 2

    assert partition.stable_end == partition.high_watermark == 4
    assert partition.transactions is not None
    assert len(partition.transactions.aborted) == (not is_commit)


async def test_each_partition_has_its_own_error(rig: Rig) -> None:
    topic = await rig.topic("t", 2)
    await write(rig, topic, number=1)
    codes = await end(rig, {"gone": [0], "t": [7, 1, 1]}, epoch=1)
    assert codes == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ]


async def test_a_marker_of_an_earlier_coordinator_is_refused(rig: Rig) -> None:
    topic = await rig.topic("t")
    await write(rig, topic)
    assert await end(rig, {"t": [0]}, coordinator_epoch=5) == [ErrorCode.NONE]
    refused = await end(rig, {"t": [0]}, coordinator_epoch=4)
    assert refused == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]


async def test_a_marker_with_an_epoch_of_its_own_is_written_once(rig: Rig) -> None:
    topic = await rig.topic("t")
    partition = await write(rig, topic)
    for _ in range(3):
        assert await end(rig, {"t": [0]}, epoch=3, version=2) == [ErrorCode.NONE]
    assert partition.high_watermark == 2


async def test_markers_need_a_right_on_the_cluster(rig: Rig) -> None:
    topic = await rig.topic("t")
    await write(rig, topic)
    session = rig.login("ann")
    denied = await end(rig, {"t": [0]}, session=session)
    assert denied == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    await rig.allow("ann", Operation.CLUSTER_ACTION, "cluster", "")
    assert await end(rig, {"t": [0]}, session=session) == [ErrorCode.NONE]


async def test_latest_is_the_last_stable_offset_for_committed_readers(rig: Rig) -> None:
    topic = await rig.topic("t")
    await rig.produce(topic, count=2)
    await write(rig, topic)
    for version in (2, 11):
        epoch = LEADER_EPOCH if version > 3 else -1
        committed = await list_offset(rig, LATEST, version=version, **COMMITTED)
        assert committed == (ErrorCode.NONE, 2, -1, epoch)
        assert await list_offset(rig, LATEST, version=version) == (ErrorCode.NONE, 3, -1, epoch)
    await end(rig, {"t": [0]})
    assert await list_offset(rig, LATEST, **COMMITTED) == (ErrorCode.NONE, 4, -1, LEADER_EPOCH)


async def test_a_time_behind_the_last_stable_offset_is_not_found(rig: Rig) -> None:
    topic = await rig.topic("t")
    await rig.produce(topic, count=2)
    late_unix_ms = NOW_UNIX_MS + 10
    await write(rig, topic, timestamp_unix_ms=late_unix_ms)
    nothing = (ErrorCode.NONE, -1, -1, -1)
    found = (ErrorCode.NONE, 2, late_unix_ms, LEADER_EPOCH)
    for timestamp in (late_unix_ms, MAX_TIMESTAMP):
        assert await list_offset(rig, timestamp, **COMMITTED) == nothing
        assert await list_offset(rig, timestamp) == found
    await end(rig, {"t": [0]})
    assert await list_offset(rig, late_unix_ms, **COMMITTED) == found


async def test_open_transactions_are_described(rig: Rig) -> None:
    topic = await rig.topic("t")
    await rig.produce(topic, count=4)
    await write(rig, topic, count=3)
    asked = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])

    async def described() -> tuple[int, ...]:
        answer = await rig.ask("describe_producers", 0, topics=[asked])
        [one] = answer.topics[0].partitions[0].active_producers
        return (
            one.producer_id,
            one.producer_epoch,
            one.last_sequence,
            one.coordinator_epoch,
            one.current_txn_start_offset,
        )

    assert await described() == (PRODUCER, 2, 2, -1, 4)
    await end(rig, {"t": [0]})
    assert await described() == (PRODUCER, 2, 2, 5, -1)
    await end(rig, {"t": [0]}, epoch=3, version=2)
    assert await described() == (PRODUCER, 3, -1, 5, -1)
