"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup, in every version."""

import asyncio

import pytest
from kafka.protocol.consumer import LeaveGroupRequest

from adapters.kafka.errors import ErrorCode
from adapters.kafka.handlers import heartbeat, join_group, leave_group, sync_group
from gateway.auth.ports import Operation
from gateway.config.settings import GroupsConfig
from gateway.groups.group import Group
from gateway.groups.model import GroupName, GroupState
from tests.adapters.kafka.handlers.group_fixture import GROUP, GroupRig
from tests.adapters.kafka.handlers.handler_fixture import Rig
from tests.gateway.groups.group_under_test import request, subscription


@pytest.fixture
async def rig(rig: Rig) -> GroupRig:
    return await GroupRig.open(rig)


@pytest.mark.parametrize("version", join_group.VERSIONS)
async def test_the_first_member_leads(rig: GroupRig, version: int) -> None:
    joined = await rig.join(version)
    if version >= 4:
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert joined.generation_id == -1
        joined = await rig.join(version, joined.member_id)

    assert joined.error_code == ErrorCode.NONE
    assert joined.generation_id == 1
    assert joined.protocol_name == "range"
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("app-")
    (member,) = joined.members
    assert (member.member_id, member.metadata) == (joined.member_id, subscription("t"))
    if version >= 7:
        assert joined.protocol_type == "consumer"


@pytest.mark.parametrize("version", join_group.VERSIONS)
async def test_refusals_of_a_join(rig: GroupRig, version: int) -> None:
    joined = await rig.join(version, "stranger")

    assert joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert joined.protocol_name == (None if version >= 7 else "")
    assert joined.member_id == "stranger"


async def test_before_version_1_the_session_timeout_is_the_rebalance_timeout(
    rig: GroupRig,
) -> None:
    await rig.join(0)

    group = rig.groups.find(rig.groups.names()[0])
    assert isinstance(group, Group)
    assert group.members.rebalance_timeout_ms == 10_000


@pytest.mark.parametrize("asked_ms", [-1, 0, 1])
async def test_members_get_some_time_to_join_again_whatever_one_asks_for(
    rig: GroupRig, asked_ms: int
) -> None:
    joined = await rig.join(3, rebalance_timeout_ms=asked_ms)

    group = rig.groups.find(rig.groups.names()[0])
    assert joined.error_code == ErrorCode.NONE
    assert isinstance(group, Group)
    assert (
        group.members.rebalance_timeout_ms == GroupsConfig().rebalance_timeout_ms_min == 6_000
    )


async def test_a_static_leader_that_comes_back_skips_the_assignment(rig: GroupRig) -> None:
    joined = await rig.join(9, group_instance_id="a")
    await rig.sync(5, joined, {joined.member_id: b"all"}, group_instance_id="a")

    again = await rig.join(9, group_instance_id="a")

    assert again.skip_assignment
    assert (again.generation_id, again.leader) == (1, again.member_id)
    assert again.members[0].group_instance_id == "a"
    fenced = rig.heartbeat(4, joined, group_instance_id="a")
    assert fenced == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("version", sync_group.VERSIONS)
async def test_the_leader_assigns(rig: GroupRig, version: int) -> None:
    leader = asyncio.create_task(rig.join(3))
    follower = asyncio.create_task(rig.join(3))
    led, followed = await leader, await follower
    if not led.members:
        led, followed = followed, led
    waiting = asyncio.create_task(rig.sync(version, followed, {}))

    assignments = {led.member_id: b"one half", followed.member_id: b"the other"}
    first = await rig.sync(version, led, assignments)
    second = await waiting

    assert (first.assignment, second.assignment) == (b"one half", b"the other")
    assert first.error_code == second.error_code == ErrorCode.NONE
    if version >= 5:
        assert (first.protocol_type, first.protocol_name) == ("consumer", "range")
    assert rig.state() is GroupState.STABLE


async def test_sync_refuses_another_protocol(rig: GroupRig) -> None:
    joined = await rig.join(3)

    synced = await rig.sync(5, joined, {}, protocol_type="consumer", protocol_name="sticky")

    assert synced.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_sync_needs_the_generation(rig: GroupRig) -> None:
    joined = await rig.join(3)

    synced = await rig.sync(3, joined, {}, generation_id=9)

    assert synced.error_code == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", heartbeat.VERSIONS)
async def test_heartbeats(rig: GroupRig, version: int) -> None:
    joined = await rig.member()

    assert rig.heartbeat(version, joined) == ErrorCode.NONE
    assert rig.heartbeat(version, joined, generation_id=5) == ErrorCode.ILLEGAL_GENERATION
    assert rig.heartbeat(version, joined, member_id="x") == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.heartbeat(version, joined, group_id="") == ErrorCode.INVALID_GROUP_ID
    newcomer = request(needs_known_member_id=False)
    rig.groups.join(GroupName("default", GROUP), newcomer, lambda _: None)
    assert rig.heartbeat(version, joined) == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("version", leave_group.VERSIONS)
async def test_leaving(rig: GroupRig, version: int) -> None:
    joined = await rig.member()
    member = LeaveGroupRequest.MemberIdentity

    if version >= 3:
        answer = await rig.ask(
            "leave_group",
            version,
            group_id=GROUP,
            members=[member(member_id="stranger"), member(member_id=joined.member_id)],
        )
        codes = [(m.member_id, m.error_code) for m in answer.members]
        assert codes == [
            ("stranger", ErrorCode.UNKNOWN_MEMBER_ID),
            (joined.member_id, ErrorCode.NONE),
        ]
    else:
        answer = await rig.ask(
            "leave_group", version, group_id=GROUP, member_id=joined.member_id
        )

    assert answer.error_code == ErrorCode.NONE
    assert rig.state() is GroupState.EMPTY


@pytest.mark.parametrize("version", leave_group.VERSIONS)
async def test_leaving_a_group_that_is_not_there(rig: GroupRig, version: int) -> None:
    member = LeaveGroupRequest.MemberIdentity
    who = {"members": [member(member_id="m")]} if version >= 3 else {"member_id": "m"}

    answer = await rig.ask("leave_group", version, group_id="nobody", **who)

    if version >= 3:
        assert answer.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    else:
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_members_need_the_right_to_read_as_the_group(rig: GroupRig) -> None:
    joined = await rig.member()
    await rig.rig.allow("alice", Operation.READ, "group", "other")
    rig.rig.session = rig.login("alice")
    denied = ErrorCode.GROUP_AUTHORIZATION_FAILED

    assert rig.heartbeat(4, joined) == denied
    assert (await rig.join(5)).error_code == denied
    assert (await rig.sync(5, joined, {})).error_code == denied
    answer = await rig.ask(
        "leave_group", 2, session=rig.rig.session, group_id=GROUP, member_id="m"
    )
    assert answer.error_code == denied
    assert (await rig.join(3, group_id="other")).error_code == ErrorCode.NONE
