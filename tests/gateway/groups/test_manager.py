"""Groups at run time: found, timed, stored, and there again after a restart."""

import asyncio

import pytest

from gateway.config.settings import GroupsConfig
from gateway.errors import (
    CoordinatorLoading,
    GroupNotFound,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    MemberIdRequired,
    ShuttingDown,
    StorageUnavailable,
    UnknownMember,
)
from gateway.groups.cursors import Commit, CursorManager
from gateway.groups.directory import GROUP_ID_CHARS_MAX
from gateway.groups.group import Group
from gateway.groups.manager import GroupManager
from gateway.groups.model import GroupName, GroupState, JoinResult
from gateway.groups.owners import GroupOwners
from gateway.groups.store import decode_group, encode_group
from gateway.sharded_stream import ShardedStream
from gateway.streams import VALUE_BYTES_MAX
from tests.gateway.groups.clients import NAME, RETENTION_MS, Clients
from tests.gateway.groups.group_under_test import RANGE, SESSION_MS, request
from tests.gateway.kernel_in_memory import GROUPS, House


class TestRequests:
    async def test_the_two_steps_of_a_join(self, house: House) -> None:
        clients = await Clients.start(house)

        first = await clients.join(request())
        assert isinstance(first.error, MemberIdRequired)
        assert first.member_id.startswith("app-")
        second = await clients.join(request(first.member_id))

        assert second.error is None
        assert second.member_id == first.member_id

    async def test_the_timer_of_the_loop_ends_a_phase(self, house: House) -> None:
        clients = await Clients.start(house, GroupsConfig(initial_rebalance_delay_ms=1))
        answer = clients.begin_join(request(needs_known_member_id=False))
        house.clock.advance(1)

        joined = await asyncio.wait_for(answer, timeout=60)

        assert joined.generation == 1

    @pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001])
    async def test_session_timeouts_have_bounds(
        self, house: House, session_timeout_ms: int
    ) -> None:
        clients = await Clients.start(house)

        answer = await clients.join(request(session_timeout_ms=session_timeout_ms))

        assert isinstance(answer.error, InvalidSessionTimeout)

    @pytest.mark.parametrize("group_id", ["", "g" * (GROUP_ID_CHARS_MAX + 1)])
    async def test_a_group_needs_a_name(self, house: House, group_id: str) -> None:
        clients = await Clients.start(house)
        name = GroupName("default", group_id)

        answer = await clients.join(request(), name)
        assert isinstance(answer.error, InvalidGroupId)
        with pytest.raises(InvalidGroupId):
            clients.groups.heartbeat(name, "m", None, 1)
        with pytest.raises(InvalidGroupId):
            clients.groups.check_commit(name, "", None, -1)

    async def test_a_refused_first_join_leaves_no_group(self, house: House) -> None:
        clients = await Clients.start(house)

        await clients.join(request(protocols=()))

        assert not clients.groups.has(NAME)

    async def test_unknown_groups_have_unknown_members(self, house: House) -> None:
        groups = (await Clients.start(house)).groups

        with pytest.raises(UnknownMember):
            groups.heartbeat(NAME, "m", None, 1)
        with pytest.raises(UnknownMember):
            groups.leave(NAME, [("m", None)])
        with pytest.raises(GroupNotFound):
            groups.check_commit(NAME, "m", None, 1)
        groups.check_commit(NAME, "", None, -1)

    async def test_leaving_answers_for_each_member(self, house: House) -> None:
        clients = await Clients.start(house)
        joined = await clients.member()

        outcomes = clients.groups.leave(NAME, [("stranger", None), (joined.member_id, None)])

        assert [type(error) for error in outcomes] == [UnknownMember, type(None)]
        assert clients.state() is GroupState.EMPTY

    async def test_sync_checks_what_the_member_believes_in(self, house: House) -> None:
        clients = await Clients.start(house)
        await clients.member()

        clients.groups.check_protocol(NAME, "consumer", "range")
        clients.groups.check_protocol(NAME, None, None)
        with pytest.raises(InconsistentProtocol):
            clients.groups.check_protocol(NAME, "connect", "range")
        with pytest.raises(InconsistentProtocol):
            clients.groups.check_protocol(NAME, "consumer", "sticky")

    async def test_silence_ends_a_member(self, house: House) -> None:
        clients = await Clients.start(house)
        joined = await clients.member()

        clients.advance(SESSION_MS - 1)
        clients.groups.heartbeat(NAME, joined.member_id, None, 1)
        clients.advance(SESSION_MS - 1)
        assert clients.groups.member_count == 1
        clients.advance(1)

        assert clients.groups.member_count == 0
        assert clients.groups.count_by_state()[GroupState.EMPTY] == 1

    async def test_namespaces_keep_groups_apart(self, house: House) -> None:
        clients = await Clients.start(house)
        other = GroupName("vhost", "g")
        await clients.member()
        await clients.member(other)

        assert clients.groups.names() == [NAME, other]
        assert clients.groups.names("vhost") == [other]

    async def test_a_group_too_large_to_store_is_told_so(self, house: House) -> None:
        clients = await Clients.start(house)
        huge = (("range", bytes(VALUE_BYTES_MAX)),)
        joined = await clients.join(request(needs_known_member_id=False, protocols=huge))

        synced = await clients.sync(joined)

        assert isinstance(synced.error, StorageUnavailable)

    async def test_before_it_is_loaded_it_says_so(self, house: House) -> None:
        stream = await ShardedStream.open("__cursors", house.broker, house.topics, house.clock)
        cursors = CursorManager(
            stream, house.clock, GROUPS, is_topic=lambda _: True, shards=house.broker.shards
        )
        groups = GroupManager(
            cursors, house.topics, house.clock, GROUPS, GroupOwners(house.broker.placement)
        )
        answers: list[JoinResult] = []

        groups.join(NAME, request(), answers.append)

        assert isinstance(answers[0].error, CoordinatorLoading)
        with pytest.raises(CoordinatorLoading):
            groups.names()

    async def test_a_stopping_node_sends_everybody_away(self, house: House) -> None:
        clients = await Clients.start(house)
        waiting = clients.begin_join(request(needs_known_member_id=False))

        clients.groups.close()

        assert isinstance((await waiting).error, ShuttingDown)
        assert isinstance((await clients.join(request())).error, ShuttingDown)


class TestRestart:
    async def test_members_go_on_without_a_rebalance(self, house: House) -> None:
        clients = await Clients.start(house)
        joined = await clients.member()

        clients = await clients.restart()

        clients.groups.heartbeat(NAME, joined.member_id, None, joined.generation)
        assert clients.state() is GroupState.STABLE
        synced = await clients.sync(joined._replace(members=()))
        assert synced.assignment == joined.member_id.encode()

    async def test_members_that_do_not_come_back_are_out(self, house: House) -> None:
        clients = await Clients.start(house)
        await clients.member()

        clients = await clients.restart()
        clients.advance(SESSION_MS - 1)
        assert clients.groups.member_count == 1
        clients.advance(1)

        assert clients.state() is GroupState.EMPTY

    async def test_generations_go_on(self, house: House) -> None:
        clients = await Clients.start(house)
        joined = await clients.member()
        clients = await clients.restart()

        again = await clients.join(request(joined.member_id))

        assert again.generation == joined.generation + 1
        with pytest.raises(IllegalGeneration):
            clients.groups.heartbeat(NAME, joined.member_id, None, joined.generation)

    async def test_a_replaced_static_member_is_known_by_its_new_id(self, house: House) -> None:
        clients = await Clients.start(house)
        old = await clients.member(instance_id="a")
        new = await clients.join(request(instance_id="a", needs_known_member_id=False))
        assert new.generation == old.generation

        clients = await clients.restart()

        clients.groups.heartbeat(NAME, new.member_id, "a", 1)
        synced = await clients.sync(new, "a")
        assert synced.assignment == old.member_id.encode()

    async def test_an_empty_group_stays_empty_since_then(self, house: House) -> None:
        clients = await Clients.start(house)
        topic = await house.topic("t")
        joined = await clients.member()
        await clients.commit(Commit(topic.uuid, 0, 5))
        house.clock.advance(1_000)
        clients.groups.leave(NAME, [(joined.member_id, None)])
        house.clock.advance(RETENTION_MS - 1)

        clients = await clients.restart()
        clients.expiry().expire(NAME)
        assert clients.cursors.has(NAME)
        house.clock.advance(1)
        clients.expiry().expire(NAME)

        assert not clients.groups.has(NAME)

    async def test_every_field_is_stored(self, house: House) -> None:
        clients = await Clients.start(house)
        await clients.member(instance_id="a", protocols=(*RANGE, ("sticky", b"\x00\xff")))
        group = clients.groups.find(NAME)
        assert isinstance(group, Group)

        stored = decode_group(encode_group(group, 123))

        (member,) = group.members
        (copy,) = stored.members
        assert stored[:5] == (1, 123, "consumer", "range", member.member_id)
        fields = (
            "member_id", "instance_id", "client_id", "client_host", "protocols",
            "session_timeout_ms", "rebalance_timeout_ms", "assignment", "protocol_type",
        )  # fmt: skip
        for field in fields:
            assert getattr(copy, field) == getattr(member, field), field
