"""Groups at run time: found, timed, stored, and there again after a restart."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.config import GroupsConfig
from gateway.cursors import Commit, CursorManager
from gateway.errors import (
    CoordinatorLoading,
    GroupNotEmpty,
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
from gateway.group_expiry import OffsetExpiry
from gateway.group_model import GroupName, GroupState, JoinRequest, JoinResult, SyncResult
from gateway.group_store import decode_group, encode_group
from gateway.groups import GroupManager
from gateway.streams import VALUE_BYTES_MAX, InternalStream
from tests.gateway.group_world import RANGE, SESSION_MS, request
from tests.gateway.house import GROUPS, House, outcome, running

NAME = GroupName("default", "g")
RETENTION_MS = GROUPS.offsets_retention_ms


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with running(tmp_path) as one:
        yield one


class Clients:
    """Talks to a manager as a handler does; time passes when told."""

    def __init__(self, house: House, groups: GroupManager, cursors: CursorManager) -> None:
        self.house = house
        self.groups = groups
        self.cursors = cursors

    @classmethod
    async def start(cls, house: House, config: GroupsConfig = GROUPS) -> "Clients":
        groups, cursors = await house.groups(config)
        return cls(house, groups, cursors)

    async def restart(self) -> "Clients":
        self.groups.close()
        self.cursors.close()
        await self.house.restart()
        return await Clients.start(self.house)

    def begin_join(
        self, asked: JoinRequest, name: GroupName = NAME
    ) -> asyncio.Future[JoinResult]:
        answer: asyncio.Future[JoinResult] = asyncio.Future()
        self.groups.join(name, asked, answer.set_result)
        return answer

    async def join(self, asked: JoinRequest, name: GroupName = NAME) -> JoinResult:
        answer = self.begin_join(asked, name)
        self.advance(0)
        return await answer

    async def sync(
        self, joined: JoinResult, instance_id: str | None = None, name: GroupName = NAME
    ) -> SyncResult:
        answer: asyncio.Future[SyncResult] = asyncio.Future()
        assignments = {m.member_id: m.member_id.encode() for m in joined.members}
        self.groups.sync(
            name,
            joined.member_id,
            instance_id,
            joined.generation,
            assignments,
            answer.set_result,
        )
        return await answer

    async def member(self, name: GroupName = NAME, **changes: object) -> JoinResult:
        """Bring the only member of a group in, and sync it."""
        asked = request(needs_known_member_id=False)._replace(**changes)  # type: ignore[arg-type]  # whatever a test wants
        joined = await self.join(asked, name)
        await self.sync(joined, asked.instance_id, name)
        return joined

    def advance(self, ms: int) -> None:
        self.house.clock.advance(ms)
        self.groups._deadlines.run_due()

    def state(self, name: GroupName = NAME) -> GroupState | None:
        group = self.groups.find(name)
        return None if group is None else group.state

    def expiry(self) -> OffsetExpiry:
        assert self.groups._expiry is not None
        return self.groups._expiry

    async def commit(self, *commits: Commit, name: GroupName = NAME) -> None:
        error = await outcome(lambda on_done: self.cursors.commit(name, commits, on_done))
        assert error is None


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

        joined = await asyncio.wait_for(answer, timeout=10)

        assert joined.generation == 1

    @pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001])
    async def test_session_timeouts_have_bounds(
        self, house: House, session_timeout_ms: int
    ) -> None:
        clients = await Clients.start(house)

        answer = await clients.join(request(session_timeout_ms=session_timeout_ms))

        assert isinstance(answer.error, InvalidSessionTimeout)

    async def test_a_group_needs_a_name(self, house: House) -> None:
        clients = await Clients.start(house)
        nameless = GroupName("default", "")

        answer = await clients.join(request(), nameless)
        assert isinstance(answer.error, InvalidGroupId)
        with pytest.raises(InvalidGroupId):
            clients.groups.heartbeat(nameless, "m", None, 1)

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
        stream = await InternalStream.open("__cursors", house.broker, house.topics, house.clock)
        groups = GroupManager(CursorManager(stream, house.clock, GROUPS), house.clock, GROUPS)
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
        assert group is not None

        stored = decode_group(encode_group(group, 123))

        (member,) = group.roster
        (copy,) = stored.members
        assert stored[:5] == (1, 123, "consumer", "range", member.member_id)
        fields = (
            "member_id", "instance_id", "client_id", "client_host", "protocols",
            "session_timeout_ms", "rebalance_timeout_ms", "assignment", "protocol_type",
        )  # fmt: skip
        for field in fields:
            assert getattr(copy, field) == getattr(member, field), field


class TestDeleting:
    async def test_it_takes_offsets_and_group(self, house: House) -> None:
        clients = await Clients.start(house)
        topic = await house.topic("t")
        joined = await clients.member()
        await clients.commit(Commit(topic.uuid, 0, 5))
        with pytest.raises(GroupNotEmpty):
            clients.groups.delete(NAME, lambda _: None)
        clients.groups.leave(NAME, [(joined.member_id, None)])

        await outcome(lambda on_done: clients.groups.delete(NAME, on_done))

        assert not clients.groups.has(NAME)
        assert not (await clients.restart()).groups.has(NAME)
        assert not clients.cursors.stream.values

    async def test_a_group_of_offsets_alone_can_go(self, house: House) -> None:
        clients = await Clients.start(house)
        topic = await house.topic("t")
        await clients.commit(Commit(topic.uuid, 0, 5))

        await outcome(lambda on_done: clients.groups.delete(NAME, on_done))

        assert not clients.groups.has(NAME)

    async def test_what_is_not_there_cannot_go(self, house: House) -> None:
        clients = await Clients.start(house)

        with pytest.raises(GroupNotFound):
            clients.groups.delete(NAME, lambda _: None)
        with pytest.raises(GroupNotFound):
            clients.groups.check_offsets_removable(NAME)

    async def test_offsets_of_consumers_may_go_topic_by_topic(self, house: House) -> None:
        clients = await Clients.start(house)
        await clients.member()
        other = GroupName("default", "workers")
        await clients.member(other, protocol_type="connect")

        clients.groups.check_offsets_removable(NAME)
        assert clients.groups.is_subscribed(NAME, "t")
        assert not clients.groups.is_subscribed(NAME, "u")
        with pytest.raises(GroupNotEmpty):
            clients.groups.check_offsets_removable(other)


class TestExpiry:
    """Offsets end (KIP-211)."""

    async def test_of_a_simple_consumer_after_the_commit(self, house: House) -> None:
        clients = await Clients.start(house)
        topic = await house.topic("t", 2)
        await clients.commit(Commit(topic.uuid, 0, 5))
        house.clock.advance(RETENTION_MS - 1)
        await clients.commit(Commit(topic.uuid, 1, 6))
        clients.expiry().expire(NAME)
        assert clients.cursors.count == 2
        house.clock.advance(1)

        clients.expiry().expire(NAME)

        assert [cursor.number for cursor in clients.cursors.fetch_all(NAME)] == [1]
        assert clients.expiry().expired == 1

    async def test_never_while_a_member_reads_the_topic(self, house: House) -> None:
        clients = await Clients.start(house)
        read, unread = await house.topic("t"), await house.topic("u")
        await clients.member()
        await clients.commit(Commit(read.uuid, 0, 5), Commit(unread.uuid, 0, 6))

        house.clock.advance(RETENTION_MS)
        clients.expiry().expire(NAME)

        assert [c.topic_uuid for c in clients.cursors.fetch_all(NAME)] == [read.uuid]

    async def test_of_an_empty_group_after_it_became_empty(self, house: House) -> None:
        clients = await Clients.start(house)
        topic = await house.topic("t")
        await clients.commit(Commit(topic.uuid, 0, 5))
        joined = await clients.member()
        house.clock.advance(RETENTION_MS)
        clients.groups.leave(NAME, [(joined.member_id, None)])

        house.clock.advance(RETENTION_MS - 1)
        clients.expiry().expire(NAME)
        assert clients.cursors.count == 1
        house.clock.advance(1)
        clients.expiry().expire(NAME)

        assert not clients.groups.has(NAME)

    async def test_when_the_client_said(self, house: House) -> None:
        clients = await Clients.start(house)
        topic = await house.topic("t")
        expires_unix_ms = house.clock.unix_ms() + 1_000
        await clients.commit(Commit(topic.uuid, 0, 5, expires_unix_ms=expires_unix_ms))

        house.clock.advance(999)
        clients.expiry().expire(NAME)
        assert clients.cursors.count == 1
        house.clock.advance(1)
        clients.expiry().expire(NAME)

        assert clients.cursors.count == 0

    async def test_an_empty_group_without_offsets_goes(self, house: House) -> None:
        clients = await Clients.start(house)
        joined = await clients.member()
        clients.expiry().expire(NAME)
        assert clients.groups.has(NAME)
        clients.groups.leave(NAME, [(joined.member_id, None)])

        clients.expiry().expire(NAME)

        assert not clients.groups.has(NAME)

    async def test_all_groups_have_their_turn(self, house: House) -> None:
        clients = await Clients.start(house)
        topic = await house.topic("t")
        for number in range(250):
            name = GroupName("default", f"g{number}")
            await clients.commit(Commit(topic.uuid, 0, 5), name=name)
        house.clock.advance(RETENTION_MS)

        turns = 0
        while clients.cursors.count:
            clients.expiry()._run_some()
            turns += 1

        assert turns == 3
