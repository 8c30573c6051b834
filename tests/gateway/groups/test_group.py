"""Joining a group and rebalancing it, one rule at a time, against the pure state machine."""

import pytest

from gateway.errors import (
    GroupFull,
    InconsistentProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    StorageUnavailable,
    UnknownMember,
)
from gateway.groups.model import TRANSITIONS, GroupState
from tests.gateway.groups.group_under_test import (
    DELAY_MS,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    SIZE_MAX,
    GroupWorld,
)


class TestFirstJoin:
    def test_a_member_without_id_is_given_one_and_must_come_back(self) -> None:  # KIP-394
        world = GroupWorld()

        with pytest.raises(MemberIdRequired) as refusal:
            world.join()
        answers = world.join(refusal.value.member_id)
        world.advance(0)

        assert answers[0].member_id == refusal.value.member_id
        assert world.group.state is GroupState.COMPLETING_REBALANCE

    def test_an_empty_group_waits_for_more_members(self) -> None:
        world = GroupWorld(delay_ms=DELAY_MS)
        first = world.join_new()
        world.advance(DELAY_MS - 1)
        second = world.join_new()

        world.advance(1)
        assert not first  # the second came within the delay, so there is another
        world.advance(DELAY_MS)

        assert [len(first), len(second)] == [1, 1]
        assert first[0].generation == second[0].generation == 1
        assert world.group.state is GroupState.COMPLETING_REBALANCE

    def test_gathering_ends_at_the_rebalance_timeout(self) -> None:
        world = GroupWorld(delay_ms=DELAY_MS, size_max=100)
        first = world.join_new(rebalance_timeout_ms=2 * DELAY_MS)

        world.advance(DELAY_MS - 1)
        world.join_new(rebalance_timeout_ms=2 * DELAY_MS)
        world.advance(DELAY_MS)
        world.join_new(rebalance_timeout_ms=2 * DELAY_MS)
        assert not first
        world.advance(1)

        assert first[0].generation == 1

    def test_only_the_leader_sees_all_members(self) -> None:
        world = GroupWorld(delay_ms=DELAY_MS)
        first, second = world.join_new(), world.join_new(protocols=(("range", b"2"),))
        world.advance(2 * DELAY_MS)

        assert first[0].leader_id == second[0].leader_id == first[0].member_id
        assert [(m.member_id, m.metadata) for m in first[0].members] == [
            (first[0].member_id, RANGE[0][1]),
            (second[0].member_id, b"2"),
        ]
        assert second[0].members == ()
        assert second[0].protocol_type == "consumer"
        assert second[0].protocol_name == "range"

    def test_an_unused_member_id_is_forgotten_after_the_session_timeout(self) -> None:
        world = GroupWorld()
        with pytest.raises(MemberIdRequired) as refusal:
            world.join()

        world.advance(SESSION_MS)

        assert world.group.is_idle
        with pytest.raises(UnknownMember):
            world.join(refusal.value.member_id)

    def test_an_id_the_group_never_gave_is_unknown(self) -> None:
        with pytest.raises(UnknownMember):
            GroupWorld().join("stranger")

    @pytest.mark.parametrize(
        ("protocol_type", "protocols"),
        [("", RANGE), ("consumer", ())],
        ids=["no type", "no protocols"],
    )
    def test_a_join_must_say_what_it_speaks(self, protocol_type: str, protocols: tuple) -> None:  # type: ignore[type-arg]  # as it comes from the table
        with pytest.raises(InconsistentProtocol):
            GroupWorld().join_new(protocol_type=protocol_type, protocols=protocols)


class TestProtocols:
    def test_most_votes_among_the_common_ones_win(self) -> None:
        world = GroupWorld(delay_ms=DELAY_MS)
        world.join_new(protocols=(("only-mine", b""), ("range", b""), ("sticky", b"")))
        world.join_new(protocols=(("sticky", b""), ("range", b"")))
        third = world.join_new(protocols=(("sticky", b""), ("range", b"")))

        world.advance(2 * DELAY_MS)

        assert third[0].protocol_name == "sticky"

    def test_nothing_in_common_is_refused(self) -> None:
        world = GroupWorld()
        world.stable(1)

        with pytest.raises(InconsistentProtocol):
            world.join_new(protocols=(("sticky", b""),))
        with pytest.raises(InconsistentProtocol):
            world.join_new(protocol_type="connect")

    def test_an_empty_group_may_change_its_type(self) -> None:
        world = GroupWorld()
        (member,) = world.stable(1)
        world.leave(member)

        world.stable(1, protocol_type="connect", protocols=(("default", b"url"),))

        assert world.group.protocol_type == "connect"


class TestRebalance:
    def test_a_newcomer_makes_the_others_join_again(self) -> None:
        world = GroupWorld()
        first, second = world.stable(2)
        newcomer = world.join_new()
        with pytest.raises(RebalanceInProgress):
            world.heartbeat(first, 1)

        answers = [world.join(first), world.join(second)]

        assert [a[0].generation for a in [newcomer, *answers]] == [2, 2, 2]

    def test_members_that_do_not_come_back_are_out_after_the_rebalance_timeout(self) -> None:
        world = GroupWorld()
        first, second = world.stable(2, session_timeout_ms=2 * REBALANCE_MS)
        again = world.join(first, session_timeout_ms=2 * REBALANCE_MS)

        world.advance(REBALANCE_MS - 1)
        assert not again
        world.advance(1)

        assert [m.member_id for m in again[0].members] == [first]
        assert second not in world.group.members

    def test_the_slowest_member_sets_the_rebalance_timeout(self) -> None:
        world = GroupWorld(delay_ms=DELAY_MS)
        slow = world.join_new(rebalance_timeout_ms=3 * REBALANCE_MS)
        world.join_new()
        world.advance(2 * DELAY_MS)

        assert slow
        assert world.group.members.rebalance_timeout_ms == 3 * REBALANCE_MS

    def test_a_leader_that_went_is_replaced_by_one_that_joined(self) -> None:
        world = GroupWorld()
        leader, second = world.stable(2)
        again = world.join(second, protocols=(("range", b"new"),))

        world.leave(leader)

        assert again[0].leader_id == second
        assert len(again[0].members) == 1

    def test_a_follower_with_nothing_new_is_just_answered(self) -> None:
        world = GroupWorld()
        leader, follower = world.stable(2)

        (answer,) = world.join(follower)

        assert (answer.generation, answer.leader_id, answer.members) == (1, leader, ())
        assert world.group.state is GroupState.STABLE

    def test_a_leader_joins_to_rebalance(self) -> None:
        world = GroupWorld()
        leader, _ = world.stable(2)

        assert not world.join(leader)
        assert world.group.state is GroupState.PREPARING_REBALANCE

    def test_a_join_repeated_before_the_assignment_is_answered_the_same(self) -> None:
        world = GroupWorld()
        first = world.join_new()
        world.advance(DELAY_MS)

        (again,) = world.join(first[0].member_id)

        assert again == first[0]

    def test_a_second_join_of_a_waiting_member_answers_the_first(self) -> None:
        world = GroupWorld()
        first, _ = world.stable(2)
        lost = world.join(first, protocols=(("range", b"1"),))

        kept = world.join(first, protocols=(("range", b"2"),))

        assert isinstance(lost[0].error, RebalanceInProgress)
        assert not kept

    def test_a_full_group_takes_nobody(self) -> None:
        world = GroupWorld(size_max=SIZE_MAX)
        members = world.stable(SIZE_MAX)

        with pytest.raises(GroupFull):
            world.join_new()
        assert world.join(members[1])

    def test_ids_given_and_not_used_are_bounded_too(self) -> None:
        world = GroupWorld(size_max=2)
        for _ in range(2):
            with pytest.raises(MemberIdRequired):
                world.join()

        with pytest.raises(GroupFull):
            world.join()


def test_a_stopping_node_answers_all_that_wait() -> None:
    world = GroupWorld()
    first, second = world.stable(2)
    joining = world.join(first)

    world.group.dismiss(StorageUnavailable("stopping"))

    assert isinstance(joining[0].error, StorageUnavailable)
    assert second in world.group.members


def test_every_state_is_in_the_table() -> None:
    of_the_new_protocol = {GroupState.ASSIGNING, GroupState.RECONCILING}
    assert set(TRANSITIONS) == set(GroupState) - of_the_new_protocol
