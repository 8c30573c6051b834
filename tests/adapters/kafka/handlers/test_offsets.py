"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeLogDirs, DescribeProducers."""

from typing import Any, TypeAlias

import pytest
from kafka.protocol.admin import (
    DeleteRecordsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
)
from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest

from adapters.kafka.errors import ErrorCode
from adapters.kafka.handlers.delete_records import truncate
from gateway.auth.ports import Operation
from gateway.model import TopicName
from tests.adapters.kafka.handlers.handler_fixture import LEADER_EPOCH, Rig
from tests.support.batches import NOW_UNIX_MS

ListTopic: TypeAlias = ListOffsetsRequest.ListOffsetsTopic
ListPartition: TypeAlias = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition
EpochTopic: TypeAlias = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
EpochPartition: TypeAlias = (
    OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition
)
DeleteTopic: TypeAlias = DeleteRecordsRequest.DeleteRecordsTopic
DeletePartition: TypeAlias = DeleteRecordsRequest.DeleteRecordsTopic.DeleteRecordsPartition


async def list_offset(
    rig: Rig,
    timestamp: int,
    *,
    version: int = 11,
    number: int = 0,
    epoch: int = -1,
    isolation_level: int = 0,
    **fields: Any,
) -> tuple[ErrorCode, int, int, int]:
    """Return (code, offset, timestamp, leader epoch) of one partition of topic ``t``."""
    partition = ListPartition(
        partition_index=number, current_leader_epoch=epoch, timestamp=timestamp
    )
    answer = await rig.ask(
        "list_offsets",
        version,
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListTopic(name="t", partitions=[partition])],
        **fields,
    )
    [got] = answer.topics[0].partitions
    assert got.partition_index == number
    return (
        ErrorCode(got.error_code.value),
        got.offset,
        got.timestamp,
        getattr(got, "leader_epoch", -1),
    )


async def fill(rig: Rig) -> None:
    """Topic ``t``: offsets 0 to 9 in three batches, at 1, 2 and 3 s after ``NOW_UNIX_MS``."""
    topic = await rig.topic("t", partitions=2)
    rig.clock.advance(10_000)
    for seconds, count in ((1, 3), (3, 4), (2, 3)):
        stamp = NOW_UNIX_MS + seconds * 1_000
        await rig.produce(topic, count=count, timestamp_unix_ms=stamp)


@pytest.mark.parametrize("version", range(1, 12))
async def test_latest_is_the_high_watermark_and_earliest_the_log_start(
    rig: Rig, version: int
) -> None:
    await fill(rig)
    topic = rig.topics.get(TopicName("default", "t"))
    await truncate(rig.node.broker, rig.partition(topic), 4)

    epoch = LEADER_EPOCH if version >= 4 else -1
    latest = await list_offset(rig, -1, version=version)
    earliest = await list_offset(rig, -2, version=version)

    assert latest == (ErrorCode.NONE, 10, -1, epoch)
    assert earliest == (ErrorCode.NONE, 4, -1, epoch)


async def test_an_empty_partition_starts_and_ends_at_0_in_the_present_epoch(rig: Rig) -> None:
    await rig.topic("t")

    assert await list_offset(rig, -1) == (ErrorCode.NONE, 0, -1, LEADER_EPOCH)
    assert await list_offset(rig, -2) == (ErrorCode.NONE, 0, -1, LEADER_EPOCH)
    assert await list_offset(rig, NOW_UNIX_MS) == (ErrorCode.NONE, -1, -1, -1)
    assert await list_offset(rig, -3) == (ErrorCode.NONE, -1, -1, -1)


async def test_a_time_leads_to_the_first_record_at_or_after_it(rig: Rig) -> None:
    await fill(rig)
    first, third = NOW_UNIX_MS + 1_000, NOW_UNIX_MS + 3_000

    assert await list_offset(rig, 0) == (ErrorCode.NONE, 0, first, LEADER_EPOCH)
    assert await list_offset(rig, first) == (ErrorCode.NONE, 0, first, LEADER_EPOCH)
    assert await list_offset(rig, first + 1) == (ErrorCode.NONE, 3, third, LEADER_EPOCH)
    assert await list_offset(rig, third + 1) == (ErrorCode.NONE, -1, -1, -1)


async def test_the_highest_timestamp_is_found_from_version_7(rig: Rig) -> None:
    await fill(rig)

    found = await list_offset(rig, -3, version=7)
    refused = await list_offset(rig, -3, version=6)

    assert found == (ErrorCode.NONE, 3, NOW_UNIX_MS + 3_000, LEADER_EPOCH)
    assert refused == (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)


async def test_tiered_specials_are_answered_as_without_tiers(rig: Rig) -> None:
    await fill(rig)

    assert await list_offset(rig, -4, version=8) == (ErrorCode.NONE, 0, -1, LEADER_EPOCH)
    assert await list_offset(rig, -5, version=9) == (ErrorCode.NONE, -1, -1, -1)
    assert await list_offset(rig, -6, version=11) == (ErrorCode.NONE, -1, -1, -1)
    for timestamp, version in ((-4, 7), (-5, 8), (-6, 10), (-7, 11)):
        code = (await list_offset(rig, timestamp, version=version))[0]
        assert code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("number", "epoch", "code"),
    [
        (0, LEADER_EPOCH, ErrorCode.NONE),
        (0, LEADER_EPOCH - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (0, LEADER_EPOCH + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (2, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (-1, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_partition_and_leader_epoch_are_checked(
    rig: Rig, number: int, epoch: int, code: ErrorCode
) -> None:
    await fill(rig)

    assert (await list_offset(rig, -1, number=number, epoch=epoch))[0] is code


async def test_a_partition_asked_for_twice_is_refused(rig: Rig) -> None:
    await fill(rig)
    twice = [
        ListPartition(partition_index=0, current_leader_epoch=-1, timestamp=stamp)
        for stamp in (-1, -2)
    ]

    answer = await rig.ask(
        "list_offsets",
        5,
        replica_id=-1,
        isolation_level=1,
        topics=[ListTopic(name="t", partitions=twice)],
    )

    codes = {partition.error_code.value for partition in answer.topics[0].partitions}
    assert codes == {ErrorCode.INVALID_REQUEST}


async def test_offsets_need_a_right_to_describe(rig: Rig) -> None:
    await fill(rig)
    await rig.allow("ada", Operation.READ, "topic", "other")

    code, *_ = await list_offset(rig, -1, session=rig.login("ada"))

    assert code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def epoch_end(
    rig: Rig, leader_epoch: int, *, version: int = 4, current: int = -1
) -> tuple[ErrorCode, int, int]:
    asked = EpochPartition(partition=0, current_leader_epoch=current, leader_epoch=leader_epoch)
    answer = await rig.ask(
        "offset_for_leader_epoch",
        version,
        replica_id=-2,
        topics=[EpochTopic(topic="t", partitions=[asked])],
    )
    [got] = answer.topics[0].partitions
    return ErrorCode(got.error_code.value), got.leader_epoch, got.end_offset


@pytest.mark.parametrize("version", range(2, 5))
async def test_the_present_epoch_ends_at_the_logs_end(rig: Rig, version: int) -> None:
    await fill(rig)

    got = await epoch_end(rig, LEADER_EPOCH, version=version)

    assert got == (ErrorCode.NONE, LEADER_EPOCH, 10)


async def test_an_epoch_before_the_log_ends_at_its_start(rig: Rig) -> None:
    await fill(rig)
    topic = rig.topics.get(TopicName("default", "t"))
    await truncate(rig.node.broker, rig.partition(topic), 4)

    code, _, end = await epoch_end(rig, LEADER_EPOCH - 1)

    assert (code, end) == (ErrorCode.NONE, 4)


@pytest.mark.parametrize("epoch", [-1, LEADER_EPOCH + 1])
async def test_an_epoch_that_never_was_has_no_end(rig: Rig, epoch: int) -> None:
    await fill(rig)

    assert await epoch_end(rig, epoch) == (ErrorCode.NONE, -1, -1)


async def test_each_epoch_ends_where_the_next_begins(rig: Rig) -> None:
    await fill(rig)
    rig.reincarnate(6)
    await rig.produce(rig.topics.get(TopicName("default", "t")), count=5)

    assert await epoch_end(rig, LEADER_EPOCH) == (ErrorCode.NONE, LEADER_EPOCH, 10)
    assert await epoch_end(rig, 5) == (ErrorCode.NONE, LEADER_EPOCH, 10)
    assert await epoch_end(rig, 6) == (ErrorCode.NONE, 6, 15)
    assert await epoch_end(rig, 7) == (ErrorCode.NONE, -1, -1)


async def test_an_offset_has_the_epoch_in_which_it_was_written(rig: Rig) -> None:
    await fill(rig)
    topic = rig.topics.get(TopicName("default", "t"))
    rig.reincarnate(6)
    late = NOW_UNIX_MS + 9_000
    await rig.produce(topic, count=5, timestamp_unix_ms=late)

    assert await list_offset(rig, -2) == (ErrorCode.NONE, 0, -1, LEADER_EPOCH)
    assert (await list_offset(rig, NOW_UNIX_MS + 3_000))[3] == LEADER_EPOCH
    assert await list_offset(rig, late) == (ErrorCode.NONE, 10, late, 6)
    assert await list_offset(rig, -3) == (ErrorCode.NONE, 10, late, 6)
    assert await list_offset(rig, -1) == (ErrorCode.NONE, 15, -1, 6)
    await truncate(rig.node.broker, rig.partition(topic), 12)
    assert await list_offset(rig, -2) == (ErrorCode.NONE, 12, -1, 6)
    assert (await epoch_end(rig, LEADER_EPOCH))[2] == 12


async def test_an_old_client_is_fenced(rig: Rig) -> None:
    await fill(rig)

    assert (await epoch_end(rig, 1, current=1))[0] is ErrorCode.FENCED_LEADER_EPOCH
    assert (await epoch_end(rig, 1, current=99))[0] is ErrorCode.UNKNOWN_LEADER_EPOCH


async def delete_records(
    rig: Rig, offset: int, *, version: int = 2, topic: str = "t", number: int = 0
) -> tuple[ErrorCode, int]:
    asked = DeleteTopic(
        name=topic, partitions=[DeletePartition(partition_index=number, offset=offset)]
    )
    answer = await rig.ask("delete_records", version, topics=[asked], timeout_ms=1_000)
    [got] = answer.topics[0].partitions
    return ErrorCode(got.error_code.value), got.low_watermark


@pytest.mark.parametrize("version", range(3))
async def test_records_are_deleted_below_an_offset(rig: Rig, version: int) -> None:
    await fill(rig)

    assert await delete_records(rig, 4, version=version) == (ErrorCode.NONE, 4)
    assert await delete_records(rig, 2, version=version) == (ErrorCode.NONE, 4)
    assert (await list_offset(rig, -2))[1] == 4


async def test_minus_one_deletes_up_to_the_high_watermark(rig: Rig) -> None:
    await fill(rig)

    assert await delete_records(rig, -1) == (ErrorCode.NONE, 10)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"offset": 11}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"offset": -2}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"offset": 1, "number": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"offset": 1, "topic": "never"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"offset": 0, "topic": "__compaction"}, ErrorCode.POLICY_VIOLATION),
    ],
)
async def test_what_cannot_be_deleted_gets_kafkas_code(
    rig: Rig, asked: dict[str, Any], code: ErrorCode
) -> None:
    await fill(rig)
    await rig.topics.create(TopicName("default", "__compaction"), internal=True)

    assert await delete_records(rig, **asked) == (code, -1)


@pytest.mark.parametrize("version", range(1, 5))
async def test_log_dirs_show_each_partitions_bytes(rig: Rig, version: int) -> None:
    await fill(rig)

    answer = await rig.ask("describe_log_dirs", version, topics=None)

    [log_dir] = answer.results
    sizes = {p.partition_index: p.partition_size for p in log_dir.topics[0].partitions}
    assert log_dir.log_dir == str(rig.node.settings.node.data_dir.absolute())
    assert sizes[0] > 0
    assert sizes[1] == 0
    if version >= 4:
        assert log_dir.total_bytes > log_dir.usable_bytes > 0


async def test_log_dirs_leave_out_what_is_not_there(rig: Rig) -> None:
    await fill(rig)
    asked = DescribeLogDirsRequest.DescribableLogDirTopic

    answer = await rig.ask(
        "describe_log_dirs",
        4,
        topics=[asked(topic="t", partitions=[1, 7]), asked(topic="never", partitions=[0])],
    )

    [topic] = answer.results[0].topics
    assert [partition.partition_index for partition in topic.partitions] == [1]


async def test_log_dirs_need_a_right_to_the_cluster(rig: Rig) -> None:
    await rig.allow("ada", Operation.READ, "topic", "")

    answer = await rig.ask("describe_log_dirs", 4, session=rig.login("ada"), topics=None)

    assert answer.error_code.value == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert answer.results == ()


async def test_idempotent_producers_are_described(rig: Rig) -> None:
    topic = await rig.topic("t", partitions=2)
    await rig.produce(topic, count=3, producer_id=41, producer_epoch=2, base_sequence=7)
    asked = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0, 1, 2])

    answer = await rig.ask("describe_producers", 0, topics=[asked])

    busy, idle, missing = answer.topics[0].partitions
    [producer] = busy.active_producers
    assert (producer.producer_id, producer.producer_epoch) == (41, 2)
    assert producer.last_sequence == 9
    assert producer.current_txn_start_offset == -1
    assert idle.active_producers == ()
    assert missing.error_code.value == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
