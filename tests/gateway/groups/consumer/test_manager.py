"""Groups of KIP-848 at run time: stored, timed, and changed from and to the classic protocol."""

import asyncio
import gc
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.config.settings import GroupsConfig
from gateway.errors import (
    GatewayError,
    GroupNotEmpty,
    GroupNotFound,
    InconsistentProtocol,
    InvalidPattern,
    NotCoordinator,
    ShuttingDown,
    StaleMemberEpoch,
    StorageUnavailable,
    UnknownMember,
    UnsupportedAssignor,
)
from gateway.groups.consumer import manager, patterns
from gateway.groups.consumer.group import ConsumerGroup
from gateway.groups.consumer.model import (
    NO_PARTITIONS,
    ConsumerMember,
    Heartbeat,
    HeartbeatResult,
    Targets,
)
from gateway.groups.consumer.protocol import CONSUMER
from gateway.groups.consumer.store import decode_member, encode_member
from gateway.groups.cursor_keys import GROUP_KEY
from gateway.groups.cursors import Commit
from gateway.groups.group import Group
from gateway.groups.model import GroupState
from gateway.testing.placement import SettablePlacement
from tests.gateway.groups.clients import NAME, Clients
from tests.gateway.groups.group_under_test import request
from tests.gateway.kernel_in_memory import GROUPS, House, outcome, running
from tests.support.waiting import until

SESSION_MS = GROUPS.consumer_session_timeout_ms
JOIN: dict[str, Any] = {
    "rebalance_timeout_ms": 60_000,
    "names": frozenset({"t"}),
    "owned": NO_PARTITIONS,
}


async def beat(
    clients: Clients, member_id: str, epoch: int, **fields: Any
) -> HeartbeatResult | GatewayError:
    answer: asyncio.Future[HeartbeatResult | GatewayError] = asyncio.Future()
    if epoch == 0:
        fields = JOIN | fields
    heartbeat = Heartbeat(member_id, epoch, **fields)
    clients.groups.consumer_heartbeat(NAME, heartbeat, answer.set_result)
    return await answer


async def joined(clients: Clients, member_id: str, **fields: Any) -> HeartbeatResult:
    result = await beat(clients, member_id, 0, **fields)
    assert isinstance(result, HeartbeatResult)
    return result


def group_of(clients: Clients) -> ConsumerGroup:
    group = clients.groups.find(NAME)
    assert isinstance(group, ConsumerGroup)
    return group


def refuse_puts(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the stream of the groups be as on a full disk."""

    def fail(_items: Any, on_done: Any, **_: Any) -> None:
        asyncio.get_running_loop().call_soon(on_done, StorageUnavailable("full"))

    monkeypatch.setattr(clients.cursors.stream, "put", fail)


@pytest.fixture
async def clients(house: House) -> Clients:
    await house.topic("t", 4)
    return await Clients.start(house)


async def test_members_go_on_after_a_restart(clients: Clients) -> None:
    first = await joined(clients, "a", instance_id="one", rack_id="r", assignor="range")
    await joined(clients, "b")
    before = group_of(clients)

    again = await clients.restart()
    after = group_of(again)
    restored = list(map(encode_member, after.members))
    asked = await beat(again, "a", first.epoch, instance_id="one")

    assert (after.epoch, after.assignment_epoch) == (before.epoch, before.assignment_epoch)
    assert restored == list(map(encode_member, before.members))
    assert after.topics_hash == before.topics_hash
    assert isinstance(asked, HeartbeatResult)
    assert asked.assignment is not None
    assert len(asked.assignment) == 2
    assert after.epoch == 2, "a restart alone makes no new epoch"


async def test_every_field_of_a_member_is_stored(clients: Clients) -> None:
    await joined(
        clients,
        "a",
        instance_id="i",
        rack_id="r",
        client_id="c",
        client_host="/h",
        regex="t.*",
        assignor="range",
    )
    (member,) = group_of(clients).members

    stored = decode_member("a", encode_member(member))

    timers = {"deadline_ms", "revocation_deadline_ms", "since_epochs"}
    fields = [name for name in type(member).__slots__ if name not in timers]
    assert [getattr(stored, name) for name in fields] == [
        getattr(member, name) for name in fields
    ]


async def test_a_silent_member_is_removed_by_the_timer(clients: Clients) -> None:
    await joined(clients, "a")
    await joined(clients, "b")
    clients.house.clock.advance(SESSION_MS - 1)
    await beat(clients, "b", 2)
    clients.house.clock.advance(1)
    clients.groups.consumer_groups._deadlines.run_due()

    assert [member.member_id for member in group_of(clients).members] == ["b"]
    again = await clients.restart()
    assert [member.member_id for member in group_of(again).members] == ["b"]


async def test_the_last_member_leaves_an_empty_group_with_its_offsets(
    clients: Clients,
) -> None:
    await joined(clients, "a")
    topic = clients.house.topics.topics()[0]
    await clients.commit(Commit(topic.uuid, 0, 7))
    with pytest.raises(GroupNotEmpty):
        clients.groups.delete(NAME, lambda _: None)

    await beat(clients, "a", -1)
    again = await clients.restart()

    assert group_of(again).state is GroupState.EMPTY
    assert group_of(again).empty_since_unix_ms is not None
    assert await outcome(lambda on_done: again.groups.delete(NAME, on_done)) is None
    last = await again.restart()
    assert last.groups.names() == []
    assert not [key for key in last.cursors.stream.values if key[0] in {3, 4}]


async def test_an_empty_classic_group_becomes_one_of_the_new_protocol(
    clients: Clients,
) -> None:
    member = await clients.member()
    assert isinstance(await beat(clients, "a", 0), GroupNotFound)

    clients.groups.leave(NAME, [(member.member_id, None)])
    topic = clients.house.topics.topics()[0]
    await clients.commit(Commit(topic.uuid, 0, 7))
    await joined(clients, "a")
    again = await clients.restart()

    assert len(group_of(again).members) == 1
    position = again.cursors.fetch(NAME, topic.uuid, 0)
    assert position is not None
    assert position.offset == 7


@pytest.mark.parametrize("way", ["refused", "waiting", "not stored"])
async def test_a_converted_group_is_not_classic_again_after_a_restart(
    clients: Clients, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    member = await clients.member()
    clients.groups.leave(NAME, [(member.member_id, None)])
    if way == "refused":
        assert isinstance(await beat(clients, "a", 0, assignor="best"), UnsupportedAssignor)
        assert isinstance(clients.groups.find(NAME), Group), "nothing has changed"
    elif way == "waiting":
        monkeypatch.setattr(manager, "INLINE_SIZE_MAX", 0)
    else:
        with monkeypatch.context() as patch:
            refuse_puts(clients, patch)
            assert isinstance(await beat(clients, "a", 0), StorageUnavailable)

    await joined(clients, "a")
    again = await clients.restart()

    assert isinstance(await beat(again, "a", 1), HeartbeatResult)
    assert not [key for key in again.cursors.stream.values if key.startswith(GROUP_KEY)]


async def test_an_empty_group_of_the_new_protocol_becomes_classic(clients: Clients) -> None:
    await joined(clients, "a")
    refused = await clients.join(request(needs_known_member_id=False))
    assert isinstance(refused.error, InconsistentProtocol)

    await beat(clients, "a", -1)
    await clients.member()
    again = await clients.restart()

    assert again.state() is GroupState.STABLE
    assert not again.groups.consumer_groups.by_name


async def test_commits_and_fetches_check_the_member_epoch(clients: Clients) -> None:
    await joined(clients, "a")

    clients.groups.check_commit(NAME, "a", None, 1)
    clients.groups.check_fetch(NAME, "a", 1)
    with pytest.raises(StaleMemberEpoch):
        clients.groups.check_commit(NAME, "a", None, 2)
    with pytest.raises(StaleMemberEpoch):
        clients.groups.check_fetch(NAME, "a", 0)


async def test_what_is_asked_wrong_is_refused(clients: Clients) -> None:
    assert isinstance(await beat(clients, "a", 1), GroupNotFound)
    assert isinstance(await beat(clients, "a", 0, assignor="best"), UnsupportedAssignor)
    assert isinstance(await beat(clients, "a", 0, regex="("), InvalidPattern)
    assert isinstance(await beat(clients, "a", 0, regex="a" * 5_000), InvalidPattern)
    assert clients.groups.find(NAME) is None


async def test_a_pattern_reads_the_topics_that_it_matches(clients: Clients) -> None:
    await clients.house.topic("events-eu", 2)

    result = await joined(clients, "a", names=None, regex="events-.*")

    assert result.assignment is not None
    assert len(result.assignment) == 2


async def test_a_join_of_a_large_group_waits_for_the_assignor(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "INLINE_SIZE_MAX", 0)

    results = await asyncio.gather(*(joined(clients, name) for name in "abcd"))

    assert [len(result.assignment or ()) for result in results] == [1, 1, 1, 1]
    assert group_of(clients).state is GroupState.STABLE


async def test_a_static_member_replaced_while_an_assignor_runs_gets_its_part(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    await joined(clients, "a", instance_id="one")
    await beat(clients, "a", -2, instance_id="one")
    monkeypatch.setattr(manager, "INLINE_SIZE_MAX", 0)

    joining = asyncio.ensure_future(joined(clients, "b"))
    await asyncio.sleep(0)
    assert group_of(clients).is_assigning
    back = await joined(clients, "a2", instance_id="one")
    await joining

    targets = [member.target for member in group_of(clients).members]
    assert sorted(map(len, targets)) == [2, 2]
    assert len(frozenset[Any]().union(*targets)) == 4
    assert back.assignment == group_of(clients).by_id["a2"].target


async def test_a_join_is_answered_when_the_assignor_fails(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Targets:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(manager, "INLINE_SIZE_MAX", 0)
        patch.setitem(cast("dict[str, Any]", CONSUMER.assignors), "uniform", fail)
        assert type(await beat(clients, "a", 0)) is GatewayError

    result = await beat(clients, "a", 0)
    assert isinstance(result, HeartbeatResult)
    assert result.assignment is not None
    assert len(result.assignment) == 4


async def test_a_pattern_of_many_topics_is_matched_in_a_thread(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patterns, "INLINE_MATCHES_MAX", 0)
    first = await joined(clients, "a", names=None, regex="t.*")
    assert first.assignment == NO_PARTITIONS

    await until(lambda: group_of(clients).topics() == {"t"})
    found = await beat(clients, "a", first.epoch)

    assert isinstance(found, HeartbeatResult)
    assert found.epoch == first.epoch + 1
    assert found.assignment is not None
    assert len(found.assignment) == 4


async def test_members_without_a_stored_group_are_forgotten(clients: Clients) -> None:
    await joined(clients, "a")
    stream = clients.cursors.stream
    [key] = [key for key in stream.values if key.startswith(CONSUMER.group_key)]
    await outcome(lambda done: stream.put([(key, None)], done))

    again = await clients.restart()
    await until(
        lambda: (
            not [k for k in again.cursors.stream.values if k.startswith(CONSUMER.member_key)]
        )
    )

    assert not again.groups.consumer_groups.by_name


async def test_joins_that_wait_are_answered_when_the_node_stops(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "INLINE_SIZE_MAX", 0)
    waiting = asyncio.ensure_future(beat(clients, "a", 0))
    await asyncio.sleep(0)

    clients.groups.close()

    assert isinstance(await waiting, ShuttingDown)


@pytest.mark.parametrize("way", ["deleted", "classic"])
async def test_a_join_that_waits_is_answered_when_its_group_goes(
    clients: Clients, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(manager, "INLINE_SIZE_MAX", 0)
    waiting = asyncio.ensure_future(beat(clients, "a", 0))
    await asyncio.sleep(0)
    assert group_of(clients).is_assigning
    left: list[HeartbeatResult | GatewayError] = []
    clients.groups.consumer_heartbeat(NAME, Heartbeat("a", -1), left.append)

    if way == "deleted":
        clients.groups.delete(NAME, lambda _: None)
    else:
        clients.begin_join(request(needs_known_member_id=False))

    assert isinstance(await asyncio.wait_for(waiting, 10), UnknownMember)


async def test_a_deleted_group_is_not_stored_by_a_late_timer(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    await joined(clients, "a")
    with monkeypatch.context() as patch:
        refuse_puts(clients, patch)
        assert isinstance(await beat(clients, "a", -1), StorageUnavailable)
    assert await outcome(lambda on_done: clients.groups.delete(NAME, on_done)) is None

    clients.house.clock.advance(SESSION_MS)
    clients.groups.consumer_groups._deadlines.run_due()
    again = await clients.restart()

    assert again.groups.find(NAME) is None
    assert not [key for key in again.cursors.stream.values if key[0] in {3, 4}]


async def test_members_that_left_are_not_kept_by_their_timers(clients: Clients) -> None:
    for number in range(4):
        instance_id = f"i{number % 2}"
        await joined(clients, f"leaver-{number}", instance_id=instance_id)
        epoch = -1 if number % 2 else -2
        await beat(clients, f"leaver-{number}", epoch, instance_id=instance_id)

    members = [one for one in gc.get_objects() if isinstance(one, ConsumerMember)]
    leavers = [one.member_id for one in members if one.member_id.startswith("leaver")]

    assert leavers == ["leaver-2"], "it may come back"


async def test_what_could_not_be_stored_is_stored_with_the_next_heartbeat(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        refuse_puts(clients, patch)
        assert isinstance(await beat(clients, "a", 0), StorageUnavailable)
    await joined(clients, "a")

    again = await clients.restart()
    assert [member.member_id for member in group_of(again).members] == ["a"]


async def test_groups_are_bounded(house: House) -> None:
    await house.topic("t", 4)
    clients = await Clients.start(house, GroupsConfig(groups_max=1, group_size_max=2))
    await joined(clients, "a")
    await joined(clients, "b")

    full = await beat(clients, "c", 0)
    answer: list[HeartbeatResult | GatewayError] = []
    other = NAME._replace(name="other")
    clients.groups.consumer_heartbeat(other, Heartbeat("a", 0, **JOIN), answer.append)

    assert type(full).__name__ == "GroupFull"
    assert type(answer[0]).__name__ == "GroupFull"


async def test_a_group_leaves_and_comes_back_with_its_shard(tmp_path: Path) -> None:
    placement = SettablePlacement(64)
    async with running(tmp_path, placement=placement) as house:
        await house.topic("t", 4)
        clients = await Clients.start(house)
        await joined(clients, "a")
        shard = clients.groups.owners.shard(NAME)

        placement.give([shard])
        await house.broker.shards.settled()
        assert isinstance(await beat(clients, "a", 1), NotCoordinator)
        assert clients.groups.find(NAME) is None
        placement.take([shard])
        await house.broker.shards.settled()

        assert await beat(clients, "a", 1) == HeartbeatResult("a", 1, None)
        assert len(group_of(clients).members) == 1
