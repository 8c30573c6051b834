"""The roster of clients: members by group, kept alive by heartbeats, in bounds."""

from collections.abc import Iterator

import pytest

from gateway.clock import ManualClock
from gateway.errors import Overloaded
from gateway.groups.client_roster import ClientRoster
from gateway.groups.model import GroupName

GROUP, OTHER = GroupName("default", "group"), GroupName("default", "other")


class RosterUnderTest:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.changed: list[GroupName] = []
        self.roster: ClientRoster[str] = ClientRoster(
            self.clock, expiry_ms=1_000, members_max=3, on_changed=self.changed.append
        )

    def pass_ms(self, span_ms: int) -> None:
        self.clock.advance(span_ms)
        self.roster._deadlines.run_due()

    def ids(self, group: GroupName = GROUP) -> list[str]:
        return [member.client_id for member in self.roster.members(group)]


@pytest.fixture
async def under_test() -> "Iterator[RosterUnderTest]":  # type: ignore[misc]  # as pytest-asyncio has it
    made = RosterUnderTest()
    yield made
    made.roster.close()


async def test_members_are_listed_by_client_id(under_test: RosterUnderTest) -> None:
    for client_id in ("b", "a"):
        under_test.roster.beat(GROUP, client_id, "connection", "*")
    assert under_test.ids() == ["a", "b"]
    assert under_test.roster.groups() == [GROUP]
    assert len(under_test.roster) == 2


async def test_changes_are_told_and_heartbeats_are_not(under_test: RosterUnderTest) -> None:
    roster, changed = under_test.roster, under_test.changed
    roster.beat(GROUP, "a", "connection", "x")
    roster.beat(GROUP, "a", "connection", "x")
    assert changed == [GROUP]
    roster.beat(GROUP, "a", "connection", "y")
    assert changed == [GROUP, GROUP]
    roster.leave(GROUP, "a")
    roster.leave(GROUP, "a")
    assert changed == [GROUP] * 3
    assert (len(roster), roster.groups()) == (0, [])


async def test_a_member_expires_after_its_last_heartbeat(under_test: RosterUnderTest) -> None:
    under_test.roster.beat(GROUP, "a", "connection", "x")
    under_test.pass_ms(900)
    under_test.roster.beat(GROUP, "a", "connection", "x")
    under_test.roster.beat(GROUP, "b", "connection", "x")
    under_test.pass_ms(999)
    assert under_test.ids() == ["a", "b"]
    under_test.pass_ms(1)
    assert under_test.ids() == []
    assert under_test.changed == [GROUP] * 4


async def test_members_end_with_their_connection(under_test: RosterUnderTest) -> None:
    roster = under_test.roster
    roster.beat(GROUP, "a", "old", "x")
    roster.beat(OTHER, "a", "old", "x")
    roster.beat(GROUP, "b", "old", "x")
    roster.beat(GROUP, "b", "new", "x")  # it came back by another connection
    assert [group for group, _ in roster.held_by("old")] == [GROUP, OTHER]
    under_test.changed.clear()
    roster.end_holder("old")
    assert (under_test.ids(), under_test.ids(OTHER)) == (["b"], [])
    assert under_test.changed == [GROUP, OTHER]
    assert roster.held_by("old") == []
    roster.end_holder("unknown")


async def test_the_number_of_members_is_bounded(under_test: RosterUnderTest) -> None:
    roster = under_test.roster
    for client_id in "abc":
        roster.beat(GROUP, client_id, "connection", "x")
    with pytest.raises(Overloaded):
        roster.beat(OTHER, "d", "connection", "x")
    roster.beat(GROUP, "a", "connection", "x")
    roster.leave(GROUP, "a")
    roster.beat(OTHER, "d", "connection", "x")
    assert under_test.ids(OTHER) == ["d"]
