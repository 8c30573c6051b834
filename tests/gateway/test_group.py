"""The classic group protocol, one rule at a time, against the pure state machine."""

import pytest

from gateway.errors import (
    FencedInstance,
    GroupFull,
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    StorageUnavailable,
    UnknownMember,
)
from gateway.group import NEW_MEMBER_JOIN_TIMEOUT_MS
from gateway.group_model import TRANSITIONS, GroupState
from tests.gateway.group_world import (
    DELAY_MS,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    SIZE_MAX,
    GroupWorld,
    subscription,
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
        assert second not in world.group.roster

    def test_the_slowest_member_sets_the_rebalance_timeout(self) -> None:
        world = GroupWorld(delay_ms=DELAY_MS)
        slow = world.join_new(rebalance_timeout_ms=3 * REBALANCE_MS)
        world.join_new()
        world.advance(2 * DELAY_MS)

        assert slow
        assert world.group.roster.rebalance_timeout_ms == 3 * REBALANCE_MS

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

        assert silent[0].member_id not in world.group.roster
        assert world.group.state is GroupState.PREPARING_REBALANCE


class TestSessions:
    def test_heartbeats_keep_a_member_and_silence_ends_it(self) -> None:
        world = GroupWorld()
        (member,) = world.stable(1)
        for _ in range(3):
            world.advance(SESSION_MS - 1)
            world.heartbeat(member, 1)

        world.advance(SESSION_MS - 1)
        assert member in world.group.roster
        world.advance(1)

        assert member not in world.group.roster
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


class TestStaticMembers:
    """``group.instance.id`` (KIP-345)."""

    def world(self) -> tuple[GroupWorld, str, str]:
        world = GroupWorld()
        leader = world.join_new(instance_id="a")
        follower = world.join_new(instance_id="b")
        world.advance(2 * DELAY_MS)
        world.sync_all_static([leader[0], follower[0]], ["a", "b"])
        return world, leader[0].member_id, follower[0].member_id

    def test_one_that_comes_back_keeps_its_assignment_without_a_rebalance(self) -> None:
        world, leader, follower = self.world()

        (answer,) = world.join_new(instance_id="b")

        assert answer.member_id != follower
        assert (answer.generation, answer.leader_id) == (1, leader)
        assert world.group.state is GroupState.STABLE
        (synced,) = world.sync(answer.member_id, 1, instance_id="b")
        assert synced.assignment == follower.encode()

    def test_its_new_id_is_stored_before_it_is_told(self) -> None:
        world, _, _ = self.world()
        world.auto_save = False

        answers = world.join_new(instance_id="b")
        assert not answers
        world.saved()

        assert answers[0].error is None

    def test_its_old_self_is_fenced(self) -> None:
        world, _, follower = self.world()
        world.join_new(instance_id="b")

        with pytest.raises(FencedInstance):
            world.group.heartbeat(follower, "b", 1, world.now_ms)
        with pytest.raises(FencedInstance):
            world.leave(follower, "b")

    def test_an_old_self_that_waits_is_fenced_at_once(self) -> None:
        world, leader, _ = self.world()
        waiting = world.join(leader, instance_id="a")
        assert not waiting

        world.join_new(instance_id="a")

        assert isinstance(waiting[0].error, FencedInstance)

    def test_a_leader_that_comes_back_may_skip_the_assignment(self) -> None:  # KIP-814
        world, _, _ = self.world()

        (answer,) = world.join_new(instance_id="a", can_skip_assignment=True)

        assert answer.skip_assignment
        assert answer.leader_id == answer.member_id
        assert len(answer.members) == 2

    def test_an_older_leader_that_comes_back_takes_itself_for_a_follower(self) -> None:
        world, leader, _ = self.world()

        (answer,) = world.join_new(instance_id="a")

        assert (answer.leader_id, answer.members, answer.skip_assignment) == (leader, (), False)

    def test_another_protocol_means_a_rebalance(self) -> None:
        world = GroupWorld()
        protocols = (("range", b""), ("sticky", b""))
        answers = world.join_new(instance_id="a", protocols=protocols)
        world.advance(DELAY_MS)
        world.sync(answers[0].member_id, 1, {}, "a")

        (answer,) = world.join_new(instance_id="a", protocols=protocols[::-1])

        assert (answer.generation, answer.protocol_name) == (2, "sticky")

    def test_other_topics_mean_a_rebalance(self) -> None:
        world, _, _ = self.world()

        answers = world.join_new(
            instance_id="b", protocols=(("range", subscription("t", "u")),)
        )

        assert not answers
        assert world.group.state is GroupState.PREPARING_REBALANCE

    def test_they_stay_when_others_rebalance_without_them(self) -> None:
        world, leader, follower = self.world()
        long_ms = 3 * REBALANCE_MS
        world.group.roster.by_id[follower].session_timeout_ms = long_ms
        world.group.heartbeat(follower, "b", 1, world.now_ms)
        answers = world.join(leader, instance_id="a")

        world.advance(REBALANCE_MS)

        assert {m.member_id for m in answers[0].members} == {leader, follower}

    def test_an_admin_removes_one_by_its_instance(self) -> None:
        world, _, follower = self.world()

        world.leave("", "b")

        assert follower not in world.group.roster

    def test_a_group_of_silent_ones_waits_for_their_sessions(self) -> None:
        world, _, _ = self.world()
        world.leave("", "a")  # the other one does not join again

        world.advance(SESSION_MS + REBALANCE_MS)

        assert world.group.state is GroupState.EMPTY


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

        assert member in world.group.roster


class TestSubscriptions:
    def test_topics_of_all_members_count(self) -> None:
        world = GroupWorld(delay_ms=DELAY_MS)
        world.join_new(protocols=(("range", subscription("a")),))
        world.join_new(protocols=(("range", subscription("b", "c")),))
        world.advance(2 * DELAY_MS)

        assert world.group.topics() == frozenset({"a", "b", "c"})

    @pytest.mark.parametrize(
        ("protocol_type", "metadata"),
        [
            ("consumer", b"\x00"),
            ("consumer", b"\x00\x00\x00\x00\x00\x01\xff\xff"),
            ("connect", subscription("a")),
        ],
    )
    def test_what_cannot_be_read_may_be_anything(
        self, protocol_type: str, metadata: bytes
    ) -> None:
        world = GroupWorld()
        world.stable(1, protocol_type=protocol_type, protocols=(("p", metadata),))

        assert world.group.topics() is None

    def test_an_empty_group_reads_nothing(self) -> None:
        assert GroupWorld().group.topics() == frozenset()


def test_a_stopping_node_answers_all_that_wait() -> None:
    world = GroupWorld()
    first, second = world.stable(2)
    joining = world.join(first)

    world.group.dismiss(StorageUnavailable("stopping"))

    assert isinstance(joining[0].error, StorageUnavailable)
    assert second in world.group.roster


def test_every_state_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(GroupState)
