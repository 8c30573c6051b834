"""OffsetCommit, OffsetFetch and OffsetDelete, in every version."""

from uuid import uuid4

import pytest
from kafka.protocol.consumer import OffsetDeleteRequest, OffsetFetchRequest

from adapters.kafka.errors import ErrorCode
from adapters.kafka.handlers import offset_commit, offset_fetch
from gateway.auth.ports import Operation
from gateway.groups.model import GroupName
from gateway.model import TopicName
from tests.adapters.kafka.handlers.group_fixture import GROUP, GroupRig
from tests.adapters.kafka.handlers.handler_fixture import Rig


@pytest.fixture
async def rig(rig: Rig) -> GroupRig:
    await rig.topic("t", 3)
    return await GroupRig.open(rig)


def key_of(rig: GroupRig, version: int) -> object:
    (topic,) = rig.rig.topics.topics()
    return topic.uuid if version >= 10 else topic.name.name


def position(partition: object) -> tuple[int, int, str | None, int]:
    return (
        partition.partition_index,  # type: ignore[attr-defined]  # an entity of kio's
        partition.committed_offset,  # type: ignore[attr-defined]
        partition.metadata,  # type: ignore[attr-defined]
        int(partition.error_code),  # type: ignore[attr-defined]
    )


@pytest.mark.parametrize("version", offset_commit.VERSIONS)
async def test_commits_are_taken(rig: GroupRig, version: int) -> None:
    key = key_of(rig, version)

    codes = await rig.commit(version, {key: [(0, 10), (2, 20)]})

    assert codes == {key: {0: ErrorCode.NONE, 2: ErrorCode.NONE}}
    cursors = rig.rig.node.cursors.fetch_all(GroupName("default", GROUP))
    epoch = 5 if version >= 6 else -1
    assert [(c.number, c.offset, c.leader_epoch, c.metadata) for c in cursors] == [
        (0, 10, epoch, "m"),
        (2, 20, epoch, "m"),
    ]


@pytest.mark.parametrize("version", offset_fetch.VERSIONS)
async def test_positions_are_answered(rig: GroupRig, version: int) -> None:
    key = key_of(rig, version)
    await rig.commit(9, {"t": [(0, 10), (2, 20)]})

    code, found = await rig.fetch(version, {key: [2, 1]})

    assert code == ErrorCode.NONE
    assert [position(p) for p in found[key]] == [(2, 20, "m", 0), (1, -1, "", 0)]
    if version >= 5:
        assert [p.committed_leader_epoch for p in found[key]] == [5, -1]


@pytest.mark.parametrize("version", [v for v in offset_fetch.VERSIONS if v >= 2])
async def test_all_positions_of_a_group(rig: GroupRig, version: int) -> None:
    await rig.commit(9, {"t": [(0, 10), (2, 20)]})
    key = rig.rig.topics.get(TopicName("default", "t")).uuid if version >= 10 else "t"

    _, found = await rig.fetch(version, None)

    assert [position(p) for p in found[key]] == [(0, 10, "m", 0), (2, 20, "m", 0)]
    assert (await rig.fetch(version, None, group_id="other"))[1] == {}


async def test_several_groups_at_once(rig: GroupRig) -> None:
    await rig.commit(8, {"t": [(0, 10)]})
    await rig.commit(8, {"t": [(0, 99)]}, group_id="other")
    kind = OffsetFetchRequest.OffsetFetchRequestGroup
    topics = [kind.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]

    answer = await rig.ask(
        "offset_fetch", 8, groups=[kind(group_id=g, topics=topics) for g in (GROUP, "other")]
    )

    found = [g.topics[0].partitions[0].committed_offset for g in answer.groups]
    assert found == [10, 99]


async def test_unknown_topics_and_partitions_cannot_be_committed(rig: GroupRig) -> None:
    codes = await rig.commit(9, {"t": [(0, 1), (3, 1), (-1, 1)], "nothing": [(0, 1)]})

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {"t": {0: 0, 3: unknown, -1: unknown}, "nothing": {0: unknown}}
    stranger = uuid4()
    codes = await rig.commit(10, {stranger: [(0, 1)]})
    assert codes == {stranger: {0: ErrorCode.UNKNOWN_TOPIC_ID}}


async def test_unknown_topics_have_no_positions(rig: GroupRig) -> None:
    _, found = await rig.fetch(9, {"nothing": [0]})
    assert position(found["nothing"][0]) == (0, -1, "", 0)

    stranger = uuid4()
    _, found = await rig.fetch(10, {stranger: [0]})
    assert position(found[stranger][0]) == (0, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)


async def test_metadata_has_a_bound(rig: GroupRig) -> None:
    bound = rig.rig.node.cursors.metadata_bytes_max

    fits = await rig.commit(7, {"t": [(0, 1)]}, metadata="x" * bound)
    too_large = await rig.commit(7, {"t": [(1, 1)]}, metadata="x" * (bound + 1))

    assert fits == {"t": {0: ErrorCode.NONE}}
    assert too_large == {"t": {1: ErrorCode.OFFSET_METADATA_TOO_LARGE}}


async def test_null_metadata_is_empty(rig: GroupRig) -> None:
    await rig.commit(7, {"t": [(0, 1)]}, metadata=None)

    _, found = await rig.fetch(7, {"t": [0]})

    assert found["t"][0].metadata == ""


async def test_only_members_commit_to_a_group_that_has_some(rig: GroupRig) -> None:
    joined = await rig.member()
    member = {
        "generation_id_or_member_epoch": joined.generation_id,
        "member_id": joined.member_id,
    }

    assert await rig.commit(7, {"t": [(0, 1)]}, **member) == {"t": {0: ErrorCode.NONE}}
    refused = await rig.commit(7, {"t": [(0, 2)]})
    assert refused == {"t": {0: ErrorCode.UNKNOWN_MEMBER_ID}}
    older = await rig.commit(
        7, {"t": [(0, 3)]}, **(member | {"generation_id_or_member_epoch": 0})
    )
    assert older == {"t": {0: ErrorCode.ILLEGAL_GENERATION}}


@pytest.mark.parametrize(
    ("version", "code"),
    [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
)
async def test_a_generation_of_no_group(rig: GroupRig, version: int, code: ErrorCode) -> None:
    codes = await rig.commit(
        version, {"t": [(0, 1)]}, generation_id_or_member_epoch=3, member_id="m"
    )

    assert codes == {"t": {0: code}}


async def test_old_clients_say_when_positions_expire(rig: GroupRig) -> None:
    codes = await rig.commit(4, {"t": [(0, 1)]}, retention_time_ms=(1 << 63) - 1)
    assert codes == {"t": {0: ErrorCode.NONE}}
    await rig.commit(4, {"t": [(0, 1)]}, retention_time_ms=5_000)

    (cursor,) = rig.rig.node.cursors.fetch_all(GroupName("default", GROUP))

    assert cursor.expires_unix_ms == rig.rig.clock.unix_ms() + 5_000


async def test_commits_need_rights(rig: GroupRig) -> None:
    await rig.rig.allow("alice", Operation.READ, "group", GROUP)
    alice, bob = rig.login("alice"), rig.login("bob")

    no_topic = await rig.commit(7, {"t": [(0, 1)]}, session=alice)
    no_group = await rig.commit(7, {"t": [(0, 1)]}, session=bob)

    assert no_topic == {"t": {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}}
    assert no_group == {"t": {0: ErrorCode.GROUP_AUTHORIZATION_FAILED}}


async def test_fetches_need_rights(rig: GroupRig) -> None:
    await rig.commit(7, {"t": [(0, 1)]})
    await rig.rig.allow("alice", Operation.DESCRIBE, "group", GROUP)
    alice, bob = rig.login("alice"), rig.login("bob")
    no_topic, no_group = (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    )

    _, found = await rig.fetch(7, {"t": [0]}, session=alice)
    assert position(found["t"][0]) == (0, -1, "", no_topic)
    assert (await rig.fetch(7, None, session=alice))[1] == {}
    assert (await rig.fetch(7, {"t": [0]}, session=bob))[0] == no_group
    assert (await rig.fetch(8, {"t": [0]}, session=bob))[0] == no_group
    _, found = await rig.fetch(1, {"t": [0]}, session=bob)
    assert position(found["t"][0]) == (0, -1, "", no_group)


class TestOffsetDelete:
    async def delete(
        self, rig: GroupRig, *numbers: int, topic: str = "t", group_id: str = GROUP
    ) -> tuple[int, list[tuple[int, int]]]:
        kind = OffsetDeleteRequest.OffsetDeleteRequestTopic
        answer = await rig.ask(
            "offset_delete",
            0,
            group_id=group_id,
            topics=[
                kind(
                    name=topic,
                    partitions=[
                        kind.OffsetDeleteRequestPartition(partition_index=n) for n in numbers
                    ],
                )
            ],
        )
        found = [
            (p.partition_index, int(p.error_code)) for t in answer.topics for p in t.partitions
        ]
        return int(answer.error_code), found

    async def test_offsets_go(self, rig: GroupRig) -> None:
        await rig.commit(9, {"t": [(0, 10), (1, 11)]})

        answer = await self.delete(rig, 0, 2, 3)

        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answer == (ErrorCode.NONE, [(0, 0), (2, 0), (3, unknown)])
        _, found = await rig.fetch(9, None)
        assert [position(p)[:2] for p in found["t"]] == [(1, 11)]

    async def test_not_those_of_a_topic_that_is_read(self, rig: GroupRig) -> None:
        await rig.member()
        await rig.rig.topic("unread")

        subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert await self.delete(rig, 0) == (ErrorCode.NONE, [(0, subscribed)])
        assert await self.delete(rig, 0, topic="unread") == (ErrorCode.NONE, [(0, 0)])

    async def test_nor_those_of_members_that_are_no_consumers(self, rig: GroupRig) -> None:
        await rig.member(protocol_type="connect")

        assert await self.delete(rig, 0) == (ErrorCode.NON_EMPTY_GROUP, [])

    async def test_nor_of_a_group_that_is_not_there(self, rig: GroupRig) -> None:
        assert await self.delete(rig, 0) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
