"""Groups of KIP-848 under any order of heartbeats: a partition has one user at a time."""

from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.errors import (
    FencedInstance,
    FencedMemberEpoch,
    GatewayError,
    GroupFull,
    InvalidPattern,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstance,
)
from gateway.groups.consumer.group import ConsumerGroup
from gateway.groups.consumer.model import (
    NO_PARTITIONS,
    Heartbeat,
    HeartbeatResult,
    Partitions,
    SubscriptionLimits,
)
from gateway.groups.model import GroupName, GroupState

T, U = UUID(int=1), UUID(int=2)
SESSION_MS = 45_000
REBALANCE_MS = 60_000


class Topics:
    """Topics that a test changes."""

    def __init__(self, **counts: int) -> None:
        self.revision = 0
        self.counts = counts
        self.present = frozenset(counts)

    def resolve(self, name: str) -> tuple[UUID, int] | None:
        if name not in self.counts:
            return None
        return {"t": T, "u": U}[name], self.counts[name]

    def names(self) -> frozenset[str]:
        return self.present

    def change(self, **counts: int) -> None:
        self.counts = counts
        self.present = frozenset(counts)
        self.revision += 1


LIMITS = SubscriptionLimits()
NAMES_MAX, PATTERNS_MAX = LIMITS


def group_of(size_max: int = 100) -> ConsumerGroup:
    return ConsumerGroup(
        GroupName("default", "g"),
        size_max=size_max,
        session_timeout_ms=SESSION_MS,
        limits=LIMITS,
    )


class Rig:
    """A group and its topics; time passes when told."""

    def __init__(self, group: ConsumerGroup | None = None, **counts: int) -> None:
        self.group = group or group_of()
        self.topics = Topics(**(counts or {"t": 6}))
        self.now_ms = 0

    def beat(self, member_id: str, epoch: int, **fields: object) -> HeartbeatResult:
        beat = Heartbeat(member_id, epoch, **fields)  # type: ignore[arg-type]  # whatever a test wants
        if epoch < 0:
            return self.group.leave(beat, self.now_ms)
        member = self.group.update(beat, self.topics, self.now_ms)
        if self.group.needs_assignment:
            work = self.group.assignment_input()
            self.group.install(work.epoch, work.assignor_name, work.run())
        return self.group.answer(member, beat, self.now_ms)

    def join(self, member_id: str, *names: str, **fields: object) -> HeartbeatResult:
        return self.beat(
            member_id,
            0,
            rebalance_timeout_ms=REBALANCE_MS,
            names=frozenset(names or ("t",)),
            owned=NO_PARTITIONS,
            **fields,
        )


def numbers(result: HeartbeatResult) -> list[int] | None:
    if result.assignment is None:
        return None
    return sorted(number for _, number in result.assignment)


def test_the_first_member_gets_all_and_gives_half_up() -> None:
    rig = Rig()

    first = rig.join("a")
    joining = rig.join("b")
    asked = rig.beat("a", 1)
    waiting = rig.beat("b", 2)
    kept = asked.assignment
    done = rig.beat("a", 1, owned=kept)
    got = rig.beat("b", 2)

    assert (first.epoch, numbers(first)) == (1, [0, 1, 2, 3, 4, 5])
    assert (joining.epoch, numbers(joining)) == (2, [])
    assert asked.epoch == 1, "the epoch stays until the member has given the others up"
    assert len(numbers(asked) or ()) == 3
    assert waiting.assignment is None
    assert done.epoch == 2
    assert len(numbers(got) or ()) == 3
    assert got.assignment is not None
    assert kept is not None
    assert not kept & got.assignment
    assert rig.group.state is GroupState.STABLE


def test_a_heartbeat_that_says_nothing_new_changes_nothing() -> None:
    rig = Rig()
    rig.join("a")
    rig.group.take_changes()

    result = rig.beat("a", 1)

    assert result == HeartbeatResult("a", 1, None)
    assert not rig.group.has_changes


def test_new_partitions_and_topics_are_assigned() -> None:
    rig = Rig()
    rig.join("a", "t", "u")

    rig.topics.change(t=8)
    more = rig.beat("a", 1)
    rig.topics.change(t=8, u=2)
    both = rig.beat("a", 2)
    rig.topics.change(u=2)
    asked = rig.beat("a", 3)

    assert numbers(more) == list(range(8))
    assert both.assignment is not None
    assert len(both.assignment) == 10
    assert set(asked.assignment or ()) == {(U, 0), (U, 1)}


def test_a_pattern_follows_the_topics() -> None:
    rig = Rig(t=2)
    first = rig.beat("a", 0, rebalance_timeout_ms=REBALANCE_MS, regex=".*", owned=NO_PARTITIONS)

    rig.topics.change(t=2, u=1)
    second = rig.beat("a", 1, can_see=lambda name: name == "t")
    rig.topics.change(t=2, u=1)
    third = rig.beat("a", second.epoch)

    assert set(first.assignment or ()) == {(T, 0), (T, 1)}
    assert second.assignment is None, "it may not see the other topic"
    assert set(third.assignment or ()) == {(T, 0), (T, 1), (U, 0)}


def test_epochs_are_checked() -> None:
    rig = Rig()
    rig.join("a")
    rig.topics.change(t=7)
    rig.beat("a", 1)

    with pytest.raises(FencedMemberEpoch, match="greater member epoch"):
        rig.beat("a", 9)
    with pytest.raises(FencedMemberEpoch, match="smaller member epoch"):
        rig.beat("a", 1)
    with pytest.raises(UnknownMember):
        rig.beat("stranger", 1)
    lost_answer = rig.beat("a", 1, owned=frozenset({(T, 0)}))

    assert lost_answer.epoch == 2


def test_commits_need_the_member_epoch() -> None:
    rig = Rig()
    rig.group.check_epoch("", -1)
    rig.join("a")

    rig.group.check_epoch("a", 1)
    with pytest.raises(StaleMemberEpoch):
        rig.group.check_epoch("a", 0)
    with pytest.raises(UnknownMember):
        rig.group.check_epoch("b", 1)
    with pytest.raises(UnknownMember):
        rig.group.check_epoch("", -1)


def test_partitions_kept_over_epochs_may_be_committed_by_an_older_one() -> None:
    rig = Rig(t=4)
    rig.join("a")
    rig.join("b")
    kept = rig.beat("a", 1).assignment
    assert kept is not None
    assert len(kept) == 2
    rig.beat("a", 1, owned=kept)
    assert rig.group.by_id["a"].epoch == 2
    new = rig.beat("b", 2).assignment
    assert new is not None

    assert rig.group.held_since("a", 1) == kept
    assert rig.group.held_since("b", 1) == frozenset()
    assert rig.group.held_since("b", 2) == new
    assert rig.group.held_since("a", 3) == frozenset(), "from the future"
    assert rig.group.held_since("a", -1) == frozenset()
    assert rig.group.held_since("nobody", 1) == frozenset()


def test_a_silent_member_goes_after_its_session() -> None:
    rig = Rig()
    rig.join("a")
    rig.join("b")
    silent = rig.group.by_id["a"]

    rig.now_ms = SESSION_MS - 1
    early = rig.group.tick(silent, rig.now_ms)
    rig.beat("b", 2)
    rig.now_ms = SESSION_MS
    late = rig.group.tick(silent, rig.now_ms)
    result = rig.beat("b", 2)

    assert (early, late) == (SESSION_MS, None)
    assert numbers(result) == list(range(6))


def test_who_gives_nothing_up_goes_after_the_rebalance_timeout() -> None:
    rig = Rig()
    rig.join("a")
    rig.join("b")
    rig.beat("a", 1)
    slow = rig.group.by_id["a"]

    for rig.now_ms in range(0, REBALANCE_MS, SESSION_MS // 3):
        rig.beat("a", 1)
        rig.beat("b", 2)
    rig.now_ms = REBALANCE_MS
    gone = rig.group.tick(slow, rig.now_ms)

    assert gone is None
    assert numbers(rig.beat("b", 2)) == list(range(6))


def test_a_static_member_comes_back_to_its_partitions() -> None:
    rig = Rig()
    rig.join("a", instance_id="one")
    rig.join("b")
    kept = rig.beat("a", 1, instance_id="one").assignment
    rig.beat("a", 1, instance_id="one", owned=kept)
    epoch = rig.group.epoch

    with pytest.raises(UnreleasedInstance):
        rig.join("a2", instance_id="one")
    rig.beat("a", -2, instance_id="one")
    back = rig.join("a2", instance_id="one")
    with pytest.raises(FencedInstance):
        rig.beat("a", 2, instance_id="one")

    assert back.assignment == kept
    assert rig.group.epoch == epoch, "nobody else hears of it"


def test_a_static_member_that_left_for_a_while_comes_back_with_its_own_id() -> None:
    rig = Rig()
    kept = rig.join("a", instance_id="one").assignment
    rig.beat("a", -2, instance_id="one")

    back = rig.join("a", instance_id="one")

    assert (back.epoch, back.assignment) == (1, kept)
    assert rig.beat("a", 1, instance_id="one").epoch == 1


@pytest.mark.parametrize("instance_id", [None, "two"])
def test_an_instance_is_not_taken_over_under_the_id_of_another_member(
    instance_id: str | None,
) -> None:
    rig = Rig()
    rig.join("a", instance_id="one")
    rig.join("b", instance_id=instance_id)
    rig.beat("a", -2, instance_id="one")

    with pytest.raises(FencedInstance):
        rig.join("b", instance_id="one")
    with pytest.raises(FencedInstance):
        rig.join("b", instance_id="three")
    rig.beat("a", -1, instance_id="one")
    rig.beat("b", -1, instance_id=instance_id)

    assert numbers(rig.join("c", instance_id="two")) == list(range(6))


@pytest.mark.parametrize("pattern", ["(.*){1000}", "(.{1,30}){20}", "(.?){60}"])
def test_a_pattern_that_takes_long_for_each_name_is_refused(pattern: str) -> None:
    rig = Rig()
    rig.join("a")

    with pytest.raises(InvalidPattern):
        rig.beat("a", 1, regex=pattern)
    assert rig.beat("a", 1, regex="|".join(f"{number}-orders" for number in range(200)))
    assert rig.beat("a", 2, regex="(orders|payments)-(eu|us)-[0-9]+(-retry-[0-9]{1,3})?")


def test_a_group_has_a_bounded_number_of_patterns() -> None:
    rig = Rig()
    for number in range(PATTERNS_MAX):
        rig.join(f"m{number}", regex=f"t{number}")

    with pytest.raises(InvalidPattern):
        rig.join("other", regex="other")
    assert rig.join("same", regex="t0")


def test_a_group_subscribes_to_a_bounded_number_of_names() -> None:
    rig = Rig()
    most = [f"t{number}" for number in range(NAMES_MAX)]
    rig.join("a", *most)
    rig.join("b", *most)

    with pytest.raises(GroupFull):
        rig.join("c", "u")
    with pytest.raises(GroupFull):
        rig.beat("b", 2, names=frozenset([*most, "u"]))
    assert rig.group.by_id["a"].names is rig.group.by_id["b"].names, "kept once"
    assert rig.beat("b", 2, names=frozenset({"t", "u"}))


def test_a_full_group_takes_nobody() -> None:
    rig = Rig(group_of(size_max=1))
    rig.join("a")

    with pytest.raises(GroupFull):
        rig.join("b")
    rig.beat("a", -1)
    assert rig.join("b").epoch == 3


def test_the_assignor_that_most_members_name_is_used() -> None:
    rig = Rig()
    rig.join("a", assignor="range")
    rig.join("b", assignor="range")
    rig.join("c", assignor="uniform")

    assert rig.group.protocol_name == "range"


class Client:
    """A member as a client library is: it uses what it was told, and says so."""

    def __init__(self, name: str, names: tuple[str, ...]) -> None:
        self.name = name
        self.names = frozenset(names)
        self.epoch = 0
        self.owned: Partitions = NO_PARTITIONS
        self.told: Partitions = NO_PARTITIONS
        self.has_news = False
        self.lost_answer = False

    def take(self, result: HeartbeatResult) -> None:
        self.epoch = result.epoch
        if result.assignment is not None:
            self.told = result.assignment
            self.owned &= self.told  # it stops at once with what it was not told again
            self.has_news = True


class GroupMachine(RuleBasedStateMachine):
    """Clients join, beat, lose answers, leave and fall silent in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(t=5, u=3)
        self.clients: dict[str, Client] = {}

    @rule(name=st.sampled_from("abcd"), names=st.sampled_from([("t",), ("u",), ("t", "u")]))
    def join(self, name: str, names: tuple[str, ...]) -> None:
        if name in self.clients:
            return
        client = self.clients[name] = Client(name, names)
        client.take(self.rig.join(name, *names))

    @rule(name=st.sampled_from("abcd"), is_lost=st.booleans(), is_full=st.booleans())
    def beat(self, name: str, *, is_lost: bool, is_full: bool) -> None:
        client = self.clients.get(name)
        if client is None:
            return
        client.owned = client.told
        fields: dict[str, object] = {}
        if client.has_news:
            fields = {"owned": client.owned}
        if is_full or client.lost_answer:  # as clients do after a request without an answer
            fields = {
                "owned": client.owned,
                "names": client.names,
                "rebalance_timeout_ms": REBALANCE_MS,
            }
        client.has_news = False
        try:
            result = self.rig.beat(name, client.epoch, **fields)
        except FencedMemberEpoch:
            client.owned = client.told = NO_PARTITIONS
            del self.clients[name]
            self.rig.beat(name, -1)
            return
        client.lost_answer = is_lost
        if not is_lost:
            client.take(result)

    @rule(name=st.sampled_from("abcd"))
    def leave(self, name: str) -> None:
        if self.clients.pop(name, None) is not None:
            self.rig.beat(name, -1)

    @rule(t=st.integers(5, 7), u=st.integers(0, 4))
    def change_topics(self, t: int, u: int) -> None:
        self.rig.topics.change(**({"t": t, "u": u} if u else {"t": t}))

    @precondition(lambda self: self.clients)
    @rule()
    def restart(self) -> None:
        """Another process restores what was stored."""
        group, again = self.rig.group, group_of()
        again.epoch, again.assignment_epoch = group.epoch, group.assignment_epoch
        again.topics_hash = group.topics_hash
        again.restore(list(group.members), self.rig.now_ms)
        self.rig.group = again

    @invariant()
    def nobody_shares_a_partition(self) -> None:
        used = [partition for client in self.clients.values() for partition in client.owned]
        assert len(used) == len(set(used))

    def teardown(self) -> None:
        """Beats without losses bring everybody to a target that covers all partitions."""
        for _ in range(12):
            for name in list(self.clients):
                self.beat(name, is_lost=False, is_full=False)
        names: set[str] = set()
        for name in self.clients:
            names |= self.rig.group.by_id[name].names
        used = {partition for client in self.clients.values() for partition in client.owned}
        wanted = {
            (topic[0], number)
            for name in names
            if (topic := self.rig.topics.resolve(name)) is not None
            for number in range(topic[1])
        }
        assert used == wanted
        if self.clients:
            assert self.rig.group.state is GroupState.STABLE


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=60, stateful_step_count=30)


def test_an_error_leaves_the_group_as_it_was() -> None:
    rig = Rig(group_of(size_max=1))
    rig.join("a")
    rig.group.take_changes()

    for attempt in (
        lambda: rig.join("b"),
        lambda: rig.beat("a", 7),
        lambda: rig.beat("b", 1),
        lambda: rig.beat("b", -1),
    ):
        with pytest.raises(GatewayError):
            attempt()

    assert not rig.group.has_changes
    assert rig.group.epoch == 1
