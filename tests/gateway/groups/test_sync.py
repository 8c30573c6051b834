"""Syncing, staying, leaving and committing, against the pure state machine."""

import pytest

from gateway.errors import (
    IllegalGeneration,
    MemberIdRequired,
    RebalanceInProgress,
    StorageUnavailable,
    UnknownMember,
)
from gateway.groups.group import NEW_MEMBER_JOIN_TIMEOUT_MS
from gateway.groups.model import GroupState
from tests.gateway.groups.group_under_test import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    GroupWorld,
)


class TestSync:
    def test_each_member_gets_its_own_assignment(self) -> None:
        world = GroupWorld(delay_ms=DELAY_MS)
        waiting = [world.join_new() for _ in range(3)]
        world.advance(2 * DELAY_MS)

        results = world.sync_all([answers[0] for answers in waiting])

        assert [r.assignment for r in results] == [a[0].member_id.encode() for a in waiting]
        assert world.group.state is GroupState.STABLE

    def test_followers_wait_for_the_leader(self) -> None:
        world = GroupWorld(delay_ms=DELAY_MS)
        leader, follower = world.join_new(), world.join_new()
        world.advance(2 * DELAY_MS)

        early = world.sync(follower[0].member_id, 1)
        assert not early
        world.sync(leader[0].member_id, 1, {follower[0].member_id: b"all"})

        assert early[0].assignment == b"all"

    def test_nobody_is_answered_before_the_assignments_are_stored(self) -> None:
        world = GroupWorld()
        first = world.join_new()
        world.advance(DELAY_MS)
        world.auto_save = False
        answers = world.sync(first[0].member_id, 1, {first[0].member_id: b"all"})
        assert not answers

        world.saved()

        assert answers[0].assignment == b"all"

    def test_assignments_that_cannot_be_stored_are_not_handed_out(self) -> None:
        world = GroupWorld()
        first = world.join_new()
        world.advance(DELAY_MS)
        world.auto_save = False
        answers = world.sync(first[0].member_id, 1, {first[0].member_id: b"all"})

        world.saved(StorageUnavailable("full"))

        assert isinstance(answers[0].error, StorageUnavailable)
        assert answers[0].assignment == b""
        assert world.group.state is GroupState.PREPARING_REBALANCE

    def test_a_save_that_ends_after_a_new_rebalance_changes_nothing(self) -> None:
        world = GroupWorld()
        first = world.join_new()
        world.advance(DELAY_MS)
        world.auto_save = False
        member = first[0].member_id
        answers = world.sync(member, 1, {member: b"old"})
        world.join_new()
        assert isinstance(answers[0].error, RebalanceInProgress)

        world.saved()

        assert world.group.state is GroupState.PREPARING_REBALANCE
        assert len(answers) == 1

    def test_in_a_stable_group_it_is_answered_at_once(self) -> None:
        world = GroupWorld()
        leader, _ = world.stable(2)

        assert world.sync(leader, 1)[0].assignment == leader.encode()

    def test_it_needs_the_generation_and_a_member(self) -> None:
        world = GroupWorld()
        (member,) = world.stable(1)

        with pytest.raises(IllegalGeneration):
            world.sync(member, 2)
        with pytest.raises(UnknownMember):
            world.sync("stranger", 1)

    def test_during_a_rebalance_members_are_sent_to_join(self) -> None:
        world = GroupWorld()
        (member,) = world.stable(1)
        world.join_new()

        with pytest.raises(RebalanceInProgress):
            world.sync(member, 1)

    def test_members_that_never_sync_are_out_after_the_rebalance_timeout(self) -> None:
        world = GroupWorld(delay_ms=DELAY_MS)
        long_ms = 3 * REBALANCE_MS
        leader = world.join_new(session_timeout_ms=long_ms)
        silent = world.join_new(session_timeout_ms=long_ms)
        world.advance(2 * DELAY_MS)
        world.sync(leader[0].member_id, 1)

        world.advance(REBALANCE_MS)

        assert silent[0].member_id not in world.group.members
        assert world.group.state is GroupState.PREPARING_REBALANCE


class TestSessions:
    def test_heartbeats_keep_a_member_and_silence_ends_it(self) -> None:
        world = GroupWorld()
        (member,) = world.stable(1)
        for _ in range(3):
            world.advance(SESSION_MS - 1)
            world.heartbeat(member, 1)

        world.advance(SESSION_MS - 1)
        assert member in world.group.members
        world.advance(1)

        assert member not in world.group.members
        assert world.group.state is GroupState.EMPTY

    def test_a_member_that_waits_for_us_is_not_silent(self) -> None:
        world = GroupWorld()
        first, _ = world.stable(2, rebalance_timeout_ms=10 * SESSION_MS)
        again = world.join(first, rebalance_timeout_ms=10 * SESSION_MS)
        assert not again

        world.advance(SESSION_MS)  # the other one's session ends, so all have joined

        assert again[0].error is None

    def test_a_newcomer_that_waits_too_long_is_told_to_try_again(self) -> None:
        world = GroupWorld()
        world.stable(
            1,
            rebalance_timeout_ms=2 * NEW_MEMBER_JOIN_TIMEOUT_MS,
            session_timeout_ms=3 * NEW_MEMBER_JOIN_TIMEOUT_MS,
        )
        newcomer = world.join_new()

        world.advance(NEW_MEMBER_JOIN_TIMEOUT_MS)

        assert isinstance(newcomer[0].error, UnknownMember)

    def test_heartbeat_errors(self) -> None:
        world = GroupWorld()
        (member,) = world.stable(1)

        with pytest.raises(IllegalGeneration):
            world.heartbeat(member, 0)
        with pytest.raises(UnknownMember):
            world.heartbeat("stranger", 1)

    def test_between_join_and_assignment_heartbeats_are_fine(self) -> None:
        world = GroupWorld()
        first = world.join_new()
        world.advance(DELAY_MS)
        assert world.group.state is GroupState.COMPLETING_REBALANCE

        world.heartbeat(first[0].member_id, 1)


class TestLeaving:
    def test_the_last_one_leaves_an_empty_group_of_the_next_generation(self) -> None:
        world = GroupWorld()
        (member,) = world.stable(1)

        world.leave(member)

        assert world.group.state is GroupState.EMPTY
        assert world.group.generation == 2
        assert world.group.protocol_name is None

    def test_the_others_rebalance(self) -> None:
        world = GroupWorld()
        _, second = world.stable(2)

        world.leave(second)

        assert world.group.state is GroupState.PREPARING_REBALANCE

    def test_leaving_while_waiting_is_answered(self) -> None:
        world = GroupWorld()
        first, _ = world.stable(2)
        waiting = world.join(first)

        world.leave(first)

        assert isinstance(waiting[0].error, UnknownMember)

    def test_an_unused_member_id_can_leave(self) -> None:
        world = GroupWorld()
        with pytest.raises(MemberIdRequired) as refusal:
            world.join()

        world.leave(refusal.value.member_id)

        assert world.group.is_idle

    def test_strangers_cannot_leave(self) -> None:
        world = GroupWorld()
        world.stable(1)

        with pytest.raises(UnknownMember):
            world.leave("stranger")
        with pytest.raises(UnknownMember):
            world.leave("", "no-such-instance")


class TestCommits:
    def check(self, world: GroupWorld, member_id: str = "", generation: int = -1) -> None:
        world.group.check_commit(member_id, None, generation, world.now_ms)

    def test_an_empty_group_takes_them_without_a_generation(self) -> None:
        self.check(GroupWorld())

    def test_a_group_with_members_takes_them_from_members_only(self) -> None:
        world = GroupWorld()
        (member,) = world.stable(1)

        self.check(world, member, 1)
        with pytest.raises(UnknownMember):
            self.check(world)
        with pytest.raises(IllegalGeneration):
            self.check(world, member, 0)

    def test_a_generation_of_an_empty_group_is_refused(self) -> None:
        with pytest.raises(UnknownMember):
            self.check(GroupWorld(), "m", 1)

    def test_they_are_taken_while_members_join_again(self) -> None:
        world = GroupWorld()
        (member,) = world.stable(1)
        world.join_new()
        assert world.group.state is GroupState.PREPARING_REBALANCE

        self.check(world, member, 1)

    def test_they_are_refused_between_join_and_assignment(self) -> None:
        world = GroupWorld()
        answers = world.join_new()
        world.advance(DELAY_MS)

        with pytest.raises(RebalanceInProgress):
            self.check(world, answers[0].member_id, 1)

    def test_they_keep_a_member_alive(self) -> None:
        world = GroupWorld()
        (member,) = world.stable(1)
        world.advance(SESSION_MS - 1)
        self.check(world, member, 1)

        world.advance(SESSION_MS - 1)

        assert member in world.group.members


def test_a_stopping_node_answers_all_that_wait() -> None:
    world = GroupWorld()
    first, second = world.stable(2)
    joining = world.join(first)

    world.group.dismiss(StorageUnavailable("stopping"))

    assert isinstance(joining[0].error, StorageUnavailable)
    assert second in world.group.members
