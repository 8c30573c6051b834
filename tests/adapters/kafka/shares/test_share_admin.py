"""Positions, configs and dead letters of share groups, and groups that end."""

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from adapters.kafka.errors import ErrorCode
from gateway.auth.ports import EVERYBODY, Operation, PatternKind, ResourceType, Rule
from gateway.auth.rules import RuleBook
from gateway.errors import InvalidConfig, PolicyViolation
from gateway.groups.model import GroupName
from gateway.model import TopicName
from gateway.queues.model import DEFAULT_GROUP, QueueSettings
from gateway.records.codec import decode_batch
from gateway.shares.group_configs import (
    DEAD_LETTERS,
    DELIVERIES,
    LOCK_MS,
    OFFSET_RESET,
    GroupConfigs,
)
from tests.adapters.kafka.codecs import kio_codec
from tests.adapters.kafka.running_adapter import running
from tests.adapters.kafka.shares.share_shop import GROUP, ORDERS, Shop, shop
from tests.gateway.queues.clients import kept
from tests.support.share_groups import (
    ACCEPT,
    ALTER_OFFSETS,
    DELETE_OFFSETS,
    DESCRIBE,
    DESCRIBE_OFFSETS,
    REJECT,
    RELEASE,
    ShareMember,
    acquired,
    part_of,
)
from tests.support.waiting import until

LIST_GROUPS = 16
DELETE_GROUPS = 42
INCREMENTAL_ALTER_CONFIGS = 44
DESCRIBE_CONFIGS = 32
GROUP_RESOURCE = 32


async def test_offsets_are_described_altered_and_deleted(tmp_path: Path) -> None:
    async with shop(tmp_path) as one:
        await one.append(5)
        member = one.member
        await member.fetch({one.part(): []})
        await member.acknowledge({one.part(): [(0, 1, [ACCEPT])]})

        assert await _described(member, one) == [(0, 2, 3)]
        assert (await _alter(member, 4)).error_code.value == ErrorCode.NON_EMPTY_GROUP
        await member.beat(epoch=-1)
        altered = await _alter(member, 4)
        assert altered.responses[0].partitions[0].error_code.value == 0
        assert await _described(member, one) == [(0, 4, 1)]
        kind = kio_codec.request_class(DELETE_OFFSETS, 0)
        named = part_of(kind, "DeleteShareGroupOffsetsRequestTopic")(topic_name="orders")
        deleted = await member.call(DELETE_OFFSETS, 0, group_id="g", topics=(named,))
        assert deleted.responses[0].error_code.value == 0
        assert await _described(member, one) == []


async def _described(member: ShareMember, one: Shop) -> list[tuple[int, int, int]]:
    kind = kio_codec.request_class(DESCRIBE_OFFSETS, 1)
    group = part_of(kind, "DescribeShareGroupOffsetsRequestGroup")(group_id="g", topics=None)
    answer = await member.call(DESCRIBE_OFFSETS, 1, groups=(group,))
    [described] = answer.groups
    assert described.error_code.value == 0
    assert all(topic.topic_id == one.topic_id for topic in described.topics)
    return [
        (part.partition_index, part.start_offset, part.lag)
        for topic in described.topics
        for part in topic.partitions
    ]


async def test_positions_of_a_queue_that_no_share_group_made_are_not_altered(
    tmp_path: Path,
) -> None:
    async with shop(tmp_path) as one:
        await one.append(5)
        topic = one.live.kernel.topics.get(ORDERS)
        queue = await one.live.kernel.queues.create(
            topic, QueueSettings(), group="audit", from_start=True
        )
        member = ShareMember(await one.live.client(), "audit", "x")
        assert (await member.beat("orders")).error_code.value == 0
        await member.beat(epoch=-1)

        altered = await _alter(member, 4, "audit")

        [part] = altered.responses[0].partitions
        assert part.error_code.value == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert queue.counts().ready == 5


async def test_a_share_group_does_not_take_the_messages_of_other_protocols(
    tmp_path: Path,
) -> None:
    async with shop(tmp_path) as one:
        await one.append(5)
        topic = one.live.kernel.topics.get(ORDERS)
        queue = await one.live.kernel.queues.create(topic, QueueSettings(), from_start=True)
        member = ShareMember(await one.live.client(), DEFAULT_GROUP, "x")

        joined = await member.beat("orders")
        fetched = await member.fetch({one.part(): ()})
        acknowledged = await member.acknowledge({one.part(): ()})

        assert joined.error_code.value == ErrorCode.INVALID_GROUP_ID
        assert fetched.error_code.value == ErrorCode.INVALID_GROUP_ID
        assert acknowledged.error_code.value == ErrorCode.INVALID_GROUP_ID
        assert queue.counts() == (5, 0, 0)


async def test_a_group_with_a_topic_that_may_not_be_described_is_not_shown(
    tmp_path: Path,
) -> None:
    async with shop(tmp_path) as one:
        rules = one.live.kernel.authorizer
        assert isinstance(rules, RuleBook)
        denial = Rule(
            EVERYBODY,
            Operation.DESCRIBE,
            ResourceType.TOPIC,
            PatternKind.LITERAL,
            "orders",
            allow=False,
        )
        await rules.add_rules([denial])

        answer = await one.member.call(
            DESCRIBE, 1, group_ids=("g",), include_authorized_operations=False
        )

        [group] = answer.groups
        assert group.error_code.value == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not group.members


async def _alter(member: ShareMember, offset: int, group: str = "g") -> Any:
    kind = kio_codec.request_class(ALTER_OFFSETS, 0)
    partition = part_of(kind, "AlterShareGroupOffsetsRequestPartition")(
        partition_index=0, start_offset=offset
    )
    topic = part_of(kind, "AlterShareGroupOffsetsRequestTopic")(
        topic_name="orders", partitions=(partition,)
    )
    return await member.call(ALTER_OFFSETS, 0, group_id=group, topics=(topic,))


async def test_a_group_begins_at_the_end_by_default(tmp_path: Path) -> None:
    async with running(tmp_path, has_groups=True, partitions=1) as live:
        one = Shop(live, ShareMember(await live.client()))
        await one.append(3)

        await one.member.beat("orders")
        await one.append(2)

        assert acquired(await one.member.fetch({one.part(): []})) == [(0, 3, 4, 1)]


async def test_a_group_begins_at_a_time(tmp_path: Path) -> None:
    async with running(tmp_path, has_groups=True, partitions=1) as live:
        one = Shop(live, ShareMember(await live.client()))
        await one.append(1, timestamp_unix_ms=one.clock.unix_ms() - 120_000)
        await one.append(1, timestamp_unix_ms=one.clock.unix_ms() - 10_000)
        await live.adapter.node.shares.alter_configs(GROUP, {OFFSET_RESET: "by_duration:PT1M"})

        await one.member.beat("orders")

        assert acquired(await one.member.fetch({one.part(): []})) == [(0, 1, 1, 1)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (OFFSET_RESET, "sometimes"),
        (OFFSET_RESET, "by_duration:PT"),
        (OFFSET_RESET, "by_duration:1m"),
        (LOCK_MS, "0"),
        (LOCK_MS, "many"),
        (DELIVERIES, "1"),
        (DEAD_LETTERS, "a b"),
        ("share.unknown", "1"),
    ],
)
async def test_configs_are_checked(tmp_path: Path, name: str, value: str) -> None:
    async with shop(tmp_path) as one:
        with pytest.raises(InvalidConfig):
            await one.live.adapter.node.shares.alter_configs(GROUP, {name: value})


async def test_configs_hold_for_queues_that_are_there(tmp_path: Path) -> None:
    async with shop(tmp_path) as one:
        await one.append(1)
        answer = await _alter_configs(one.member, "g", LOCK_MS, "2000")
        assert answer.responses[0].error_code.value == 0

        fetched = await one.member.fetch({one.part(): []})
        one.clock.advance(2_000)

        assert fetched.acquisition_lock_timeout.total_seconds() == 2
        assert acquired(await one.member.fetch({})) == [(0, 0, 0, 2)]
        described = await _describe_configs(one.member, "g")
        assert described[LOCK_MS] == ("2000", 8)
        assert described[DELIVERIES] == ("5", 5)
        refused = await _alter_configs(one.member, "g", LOCK_MS, "0")
        assert refused.responses[0].error_code.value == ErrorCode.INVALID_CONFIG


async def test_configs_survive_a_restart_of_the_groups(tmp_path: Path) -> None:
    async with shop(tmp_path, **{LOCK_MS: "7000"}) as one:
        stored = one.live.adapter.node.shares.configs

        assert stored.get(GROUP)[LOCK_MS] == "7000"
        assert [name.name for name in stored.names("default")] == ["g"]
        assert stored.get(GroupName("default", "other")) == {}


async def test_groups_with_configs_are_bounded(tmp_path: Path) -> None:
    async with shop(tmp_path) as one:
        configs = GroupConfigs(one.live.kernel.cursors, groups_max=2)
        names = [GroupName("default", name) for name in ("a", "b")]
        await kept(partial(configs.put, names[0], {LOCK_MS: "1000"}))

        with pytest.raises(PolicyViolation):
            configs.put(names[1], {LOCK_MS: "1000"}, lambda _: None)

        await kept(partial(configs.put, names[0], {LOCK_MS: "2000"}))
        await kept(partial(configs.put, names[0], {}))
        await kept(partial(configs.put, names[1], {LOCK_MS: "1000"}))
        assert configs.get(names[1]) == {LOCK_MS: "1000"}


async def test_rejected_and_failed_messages_are_dead_letters(tmp_path: Path) -> None:
    async with shop(tmp_path, **{DELIVERIES: "2", DEAD_LETTERS: "dead"}) as one:
        dead = await one.live.kernel.topics.create(TopicName("default", "dead"), partitions=1)
        await one.append(2)
        member = one.member
        await member.fetch({one.part(): []})
        await member.acknowledge({one.part(): [(0, 1, [REJECT, RELEASE])]})
        await member.fetch({one.part(): []})
        await member.acknowledge({one.part(): [(1, 1, [RELEASE])]})
        broker = one.live.kernel.broker
        await until(lambda: broker.partition(dead, 0).high_watermark == 2)

        headers = await _headers(one, "dead")

        assert [one["__dlq.errors.offset"] for one in headers] == [b"0", b"1"]
        assert [one["__dlq.errors.delivery.count"] for one in headers] == [b"1", b"2"]
        assert [one["__dlq.errors.message"] for one in headers] == [
            b"Offset rejected by client.",
            b"Offset delivery count exceeded the threshold.",
        ]
        assert {one["__dlq.errors.topic"] for one in headers} == {b"orders"}
        assert [one["dlq.reason"] for one in headers] == [b"rejected", b"delivery_limit"]


async def _headers(one: Shop, topic: str) -> list[dict[str, bytes | None]]:
    broker = one.live.kernel.broker
    partition = broker.partition(one.live.kernel.topics.get(TopicName("default", topic)), 0)
    batches = broker.read_stored(partition, 0, partition.stable_end, bytes_max=1 << 20)
    return [dict(record.headers) for batch in batches or () for record in decode_batch(batch)]


async def test_a_group_is_listed_as_one_of_its_type_and_deleted_when_empty(
    tmp_path: Path,
) -> None:
    async with shop(tmp_path) as one:
        member = one.member
        listed = await member.call(LIST_GROUPS, 5, states_filter=(), types_filter=("share",))
        [group] = listed.groups
        assert (group.group_id, group.group_type, group.group_state) == ("g", "share", "Stable")

        kept = await member.call(DELETE_GROUPS, 2, groups_names=("g",))
        await member.beat(epoch=-1)
        gone = await member.call(DELETE_GROUPS, 2, groups_names=("g",))

        assert kept.results[0].error_code.value == ErrorCode.NON_EMPTY_GROUP
        assert gone.results[0].error_code.value == 0
        assert one.live.kernel.queues.find(ORDERS, "g") is None
        listed = await member.call(LIST_GROUPS, 5, states_filter=(), types_filter=())
        assert listed.groups == ()


async def test_a_name_is_that_of_one_kind_of_group(tmp_path: Path) -> None:
    async with shop(tmp_path) as one:
        fields: dict[str, Any] = {
            "group_id": "g",
            "member_id": "",
            "member_epoch": 0,
            "subscribed_topic_names": ("orders",),
            "topic_partitions": (),
        }

        answer = await one.member.call(68, 0, rebalance_timeout=timedelta(minutes=1), **fields)

        assert answer.error_code.value == ErrorCode.GROUP_ID_NOT_FOUND


async def _alter_configs(member: ShareMember, group: str, name: str, value: str) -> Any:
    kind = kio_codec.request_class(INCREMENTAL_ALTER_CONFIGS, 1)
    config = part_of(kind, "AlterableConfig")(name=name, config_operation=0, value=value)
    resource = part_of(kind, "AlterConfigsResource")(
        resource_type=GROUP_RESOURCE, resource_name=group, configs=(config,)
    )
    return await member.call(
        INCREMENTAL_ALTER_CONFIGS, 1, resources=(resource,), validate_only=False
    )


async def _describe_configs(member: ShareMember, group: str) -> dict[str, tuple[str, int]]:
    kind = kio_codec.request_class(DESCRIBE_CONFIGS, 4)
    resource = part_of(kind, "DescribeConfigsResource")(
        resource_type=GROUP_RESOURCE, resource_name=group, configuration_keys=None
    )
    answer = await member.call(
        DESCRIBE_CONFIGS,
        4,
        resources=(resource,),
        include_synonyms=False,
        include_documentation=False,
    )
    [result] = answer.results
    return {one.name: (one.value, one.config_source) for one in result.configs}
