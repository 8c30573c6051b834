"""Limits of the number of groups: with members, and with offsets alone."""

from uuid import uuid4

import pytest

from gateway.config.settings import GroupsConfig
from gateway.errors import GroupFull, MemberIdRequired
from gateway.groups.cursors import NO_EXPIRY, Commit
from gateway.groups.model import GroupName
from tests.gateway.groups.clients import NAME, Clients
from tests.gateway.groups.group_under_test import request
from tests.gateway.kernel_in_memory import House, outcome

BOUNDED = GroupsConfig(initial_rebalance_delay_ms=0, groups_max=2)
OTHER, THIRD = GroupName("default", "other"), GroupName("default", "third")


async def test_one_group_too_many_is_refused_and_room_is_given_back(house: House) -> None:
    clients = await Clients.start(house, BOUNDED)
    first = await clients.member()
    assert (await clients.member(OTHER)).error is None
    refused = await clients.join(request(), THIRD)
    assert isinstance(refused.error, GroupFull)
    assert clients.state(THIRD) is None
    clients.groups.leave(NAME, [(first.member_id, None)])
    assert await outcome(lambda on_done: clients.groups.delete(NAME, on_done)) is None
    assert isinstance((await clients.join(request(), THIRD)).error, MemberIdRequired)


async def test_groups_that_only_commit_have_the_same_bound(house: House) -> None:
    clients = await Clients.start(house, BOUNDED)
    commits = [Commit(uuid4(), 0, 17, -1, "", NO_EXPIRY)]
    for name in (NAME, OTHER):
        clients.groups.check_commit(name, "", None, -1)
        await outcome(
            lambda on_done, name=name: clients.cursors.commit(name, commits, on_done)  # type: ignore[misc]
        )
    with pytest.raises(GroupFull):
        clients.groups.check_commit(THIRD, "", None, -1)
    clients.groups.check_commit(NAME, "", None, -1)
    assert (await clients.member(OTHER)).error is None
