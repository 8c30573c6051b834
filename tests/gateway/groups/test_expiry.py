"""Groups and offsets end: when somebody deletes them, and when nobody needs them."""

import pytest

from gateway.errors import (
    GroupNotEmpty,
    GroupNotFound,
)
from gateway.groups.cursors import Commit
from gateway.groups.model import GroupName
from tests.gateway.groups.clients import NAME, RETENTION_MS, Clients
from tests.gateway.kernel_in_memory import House, outcome


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

    @pytest.mark.parametrize("has_offset", [True, False])
    async def test_not_while_a_transaction_may_change_its_offsets(
        self,
        house: House,
        has_offset: bool,  # noqa: FBT001 - a parameter
    ) -> None:
        clients = await Clients.start(house)
        topic = await house.topic("t")
        joined = await clients.member()
        clients.groups.leave(NAME, [(joined.member_id, None)])
        if has_offset:
            await clients.commit(Commit(topic.uuid, 0, 5))
        cursors = clients.cursors
        await outcome(
            lambda on_done: cursors.commit_pending(NAME, 7, [Commit(topic.uuid, 0, 6)], on_done)
        )
        house.clock.advance(RETENTION_MS)

        clients.expiry().expire(NAME)

        assert cursors.is_unstable(NAME, topic.uuid, 0)
        cursors.end_pending(7, [NAME], cursors.stream._coalescer, is_commit=True)
        [found] = cursors.fetch_all(NAME)
        assert found.offset == 6

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
