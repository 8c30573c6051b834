"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: what the handlers check themselves."""

from typing import Any

import pytest
from kafka.protocol.consumer import OffsetFetchRequest

from adapters.kafka.codecs.consumer_group_codec import (
    ConsumerGroupHeartbeatRequest,
    DescribeRequest,
)
from adapters.kafka.errors import ErrorCode
from adapters.kafka.handlers import consumer_group_describe, consumer_group_heartbeat
from gateway.groups.consumer.model import NO_PARTITIONS
from gateway.groups.model import GroupName
from tests.adapters.kafka.codecs import kio_codec
from tests.adapters.kafka.handlers.group_fixture import GROUP, GroupRig
from tests.adapters.kafka.handlers.handler_fixture import Rig

JOIN = ConsumerGroupHeartbeatRequest(
    group_id=GROUP,
    member_id="m",
    member_epoch=0,
    instance_id=None,
    rack_id=None,
    rebalance_timeout_ms=60_000,
    names=frozenset({"t"}),
    regex=None,
    assignor=None,
    owned=NO_PARTITIONS,
)


@pytest.fixture
async def rig(rig: Rig) -> GroupRig:
    await rig.topic("t", 3)
    return await GroupRig.open(rig)


async def beat(rig: GroupRig, request: ConsumerGroupHeartbeatRequest) -> Any:
    answer = consumer_group_heartbeat.handle(request, rig.rig.session, 1)
    body = answer if isinstance(answer, bytes) else await answer
    kind = kio_codec.response_class(consumer_group_heartbeat.API_KEY, 1)
    return kio_codec.decode(kind, body)


@pytest.mark.parametrize("field", ["group_id", "member_id", "instance_id", "rack_id"])
@pytest.mark.parametrize("text", ["", " \t"])
async def test_ids_are_not_blank(rig: GroupRig, field: str, text: str) -> None:
    changes: dict[str, Any] = {field: text}

    answer = await beat(rig, JOIN._replace(**changes))

    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message.endswith("can't be empty.")


async def test_a_member_names_a_bounded_number_of_topics(rig: GroupRig) -> None:
    names_max = rig.rig.node.settings.groups.consumer_names_max
    names = [f"t{number}" for number in range(names_max + 1)]

    answer = await beat(rig, JOIN._replace(names=frozenset(names)))

    assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not rig.groups.consumer_groups.by_name


async def test_a_name_that_no_topic_can_have_is_refused(rig: GroupRig) -> None:
    answer = await beat(rig, JOIN._replace(names=frozenset({"t" * 250})))

    assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        (None, -1, ErrorCode.NONE),
        ("m", 1, ErrorCode.NONE),
        ("m", -1, ErrorCode.STALE_MEMBER_EPOCH),
        ("other", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_offsets_are_fetched_by_members_and_by_nobody(
    rig: GroupRig, member_id: str | None, epoch: int, code: ErrorCode
) -> None:
    await beat(rig, JOIN)
    kind = OffsetFetchRequest.OffsetFetchRequestGroup
    group = kind(group_id=GROUP, member_id=member_id, member_epoch=epoch, topics=[])

    answer = await rig.ask("offset_fetch", 9, groups=[group])

    assert [one.error_code for one in answer.groups] == [code]


async def test_a_member_commits_by_an_older_epoch_what_it_has_kept(rig: GroupRig) -> None:
    await beat(rig, JOIN)
    await beat(rig, JOIN._replace(member_id="n"))
    name, again = GroupName("default", GROUP), JOIN._replace(member_epoch=1, names=None)
    await beat(rig, again._replace(owned=None))
    held = rig.groups.consumer_groups.by_name[name].by_id["m"].assigned
    await beat(rig, again._replace(owned=held))
    assert rig.groups.consumer_groups.by_name[name].by_id["m"].epoch == 2

    codes = await rig.commit(
        9,
        {"t": [(number, 5) for number in range(3)]},
        generation_id_or_member_epoch=1,
        member_id="m",
    )

    kept = {number for _, number in held}
    assert len(kept) in {1, 2}
    stale = ErrorCode.STALE_MEMBER_EPOCH
    assert codes == {"t": {n: 0 if n in kept else stale for n in range(3)}}


async def described(rig: GroupRig, *group_ids: str) -> Any:
    request = DescribeRequest(list(group_ids), includes_operations=False)
    answer = consumer_group_describe.handle(request, rig.rig.session, 1)
    body = answer if isinstance(answer, bytes) else await answer
    kind = kio_codec.response_class(consumer_group_describe.API_KEY, 1)
    return kio_codec.decode(kind, body).groups, isinstance(answer, bytes)


async def test_a_group_asked_for_many_times_is_described_once(rig: GroupRig) -> None:
    await beat(rig, JOIN)

    groups, _ = await described(rig, *[GROUP, "other"] * 10_000)

    assert [group.group_id for group in groups] == [GROUP, "other"]
    assert [len(group.members) for group in groups] == [1, 0]


async def test_much_is_described_beside_the_loop(rig: GroupRig) -> None:
    names = frozenset(f"t{number}" for number in range(600))
    await beat(rig, JOIN._replace(names=names))
    _, is_at_once = await described(rig, GROUP)
    await beat(rig, JOIN._replace(member_id="n", names=names))

    groups, is_large_at_once = await described(rig, GROUP)

    assert (is_at_once, is_large_at_once) == (True, False)
    assert [member.member_id for member in groups[0].members] == ["m", "n"]
    assert list(groups[0].members[0].subscribed_topic_names) == sorted(names)
