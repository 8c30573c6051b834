"""Static members (KIP-345, KIP-814) and subscriptions, against the pure state machine."""

import pytest

from gateway.errors import (
    FencedInstance,
)
from gateway.groups.model import GroupState
from tests.gateway.groups.group_under_test import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    GroupWorld,
    subscription,
)


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
        world.group.members.by_id[follower].session_timeout_ms = long_ms
        world.group.heartbeat(follower, "b", 1, world.now_ms)
        answers = world.join(leader, instance_id="a")

        world.advance(REBALANCE_MS)

        assert {m.member_id for m in answers[0].members} == {leader, follower}

    def test_an_admin_removes_one_by_its_instance(self) -> None:
        world, _, follower = self.world()

        world.leave("", "b")

        assert follower not in world.group.members

    def test_a_group_of_silent_ones_waits_for_their_sessions(self) -> None:
        world, _, _ = self.world()
        world.leave("", "a")  # the other one does not join again

        world.advance(SESSION_MS + REBALANCE_MS)

        assert world.group.state is GroupState.EMPTY


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
