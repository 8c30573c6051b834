"""Any order of members' requests: none waits for ever, and none gets another's share."""

from collections import Counter
from contextlib import suppress
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.errors import (
    FencedInstance,
    GatewayError,
    GroupError,
    MemberIdRequired,
    StorageUnavailable,
    UnknownMember,
)
from gateway.groups.model import GroupState, JoinResult, SyncResult
from tests.gateway.groups.group_under_test import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    GroupWorld,
    subscription,
)
from tests.support.examples import examples

PROTOCOLS = st.sampled_from(
    [
        (("range", subscription("t")),),
        (("range", subscription("t", "u")),),
        (("sticky", subscription("t")), ("range", subscription("t"))),
        (("cooperative", b"?"), ("range", b"?")),
    ]
)
LONG_MS = 4 * (REBALANCE_MS + SESSION_MS + DELAY_MS) + 400_000


class Client:
    """State of one client process. Its requests are answered one at a time."""

    def __init__(self, instance_id: str | None) -> None:
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.waiting: list[Any] = []
        self.join: JoinResult | None = None
        self.has_synced = False


class GroupMachine(RuleBasedStateMachine):
    """A group, five clients (two of them static), lost answers, slow and failing storage."""

    @initialize(delay_ms=st.sampled_from([0, DELAY_MS]))
    def begin(self, delay_ms: int) -> None:
        self.world = GroupWorld(delay_ms=delay_ms, size_max=4)
        self.world.auto_save = False
        self.clients = [Client(None), Client(None), Client(None), Client("a"), Client("b")]
        self.asked = 0
        self.answered = 0
        self.assigned: dict[int, dict[str, bytes]] = {}
        self.highest_generation = 0

    # --- what clients do

    @rule(index=st.integers(0, 4), protocols=PROTOCOLS, two_steps=st.booleans())
    def join(self, index: int, protocols: Any, *, two_steps: bool) -> None:
        client = self.clients[index]
        sink = self.sink(client)
        try:
            answers = self.world.join(
                client.member_id,
                instance_id=client.instance_id,
                protocols=protocols,
                needs_known_member_id=two_steps,
                can_skip_assignment=two_steps,
            )
        except MemberIdRequired as error:
            client.member_id = error.member_id
            self.answered += 1
            return
        except GroupError as error:
            self.refused(client, error)
            return
        sink.append(answers)

    @rule(index=st.integers(0, 4))
    def sync(self, index: int) -> None:
        client = self.clients[index]
        joined = client.join
        if joined is None:
            return
        assignments: dict[str, bytes] = {}
        if joined.members and not joined.skip_assignment:
            assignments = {
                m.member_id: f"{joined.generation}/{m.member_id}".encode()
                for m in joined.members
            }
        sink = self.sink(client)
        try:
            answers = self.world.sync(
                client.member_id, client.generation, assignments, client.instance_id
            )
        except GroupError as error:
            self.refused(client, error)
            return
        sink.append(answers)

    @rule(index=st.integers(0, 4))
    def heartbeat(self, index: int) -> None:
        client = self.clients[index]
        try:
            self.world.group.heartbeat(
                client.member_id, client.instance_id, client.generation, self.world.now_ms
            )
        except (UnknownMember, FencedInstance):
            client.member_id, client.join = "", None
        except GroupError:
            pass

    @rule(index=st.integers(0, 4))
    def leave(self, index: int) -> None:
        client = self.clients[index]
        with suppress(GroupError):
            self.world.leave(client.member_id, client.instance_id)
        client.member_id, client.join = "", None

    @rule(index=st.integers(0, 4))
    def crash(self, index: int) -> None:
        """The process starts anew: it knows nothing, and nobody reads its old answers."""
        old = self.clients[index]
        self.clients[index] = fresh = Client(old.instance_id)
        fresh.waiting = old.waiting

    @rule(ms=st.sampled_from([1, DELAY_MS, SESSION_MS - 1, SESSION_MS, REBALANCE_MS]))
    def advance(self, ms: int) -> None:
        self.world.advance(ms)

    @rule()
    def save(self) -> None:
        if self.world.saves:
            self.world.saved()

    @rule()
    def fail_to_save(self) -> None:
        if self.world.saves:
            self.world.saved(StorageUnavailable("full"))

    # --- bookkeeping

    def sink(self, client: Client) -> list[Any]:
        self.asked += 1
        return client.waiting

    def refused(self, client: Client, error: GatewayError) -> None:
        self.answered += 1
        if isinstance(error, UnknownMember | FencedInstance):
            client.member_id, client.join = "", None

    def collect(self) -> None:
        for client in self.clients:
            for answers in [a for a in client.waiting if a]:
                client.waiting.remove(answers)
                assert len(answers) == 1, "a request is answered once"
                self.answered += 1
                self.take(client, answers[0])

    def take(self, client: Client, answer: JoinResult | SyncResult) -> None:
        if answer.error is not None:
            if isinstance(answer.error, UnknownMember | FencedInstance):
                client.member_id, client.join = "", None
            return
        if isinstance(answer, JoinResult):
            client.member_id, client.generation = answer.member_id, answer.generation
            client.join = answer
            return
        if answer.assignment:
            generation, _, member_id = answer.assignment.decode().partition("/")
            member = self.world.group.members.by_id.get(member_id)
            # A static member that was replaced goes on with what its old id was given.
            assert member is None or member.instance_id == client.instance_id
            assert int(generation) <= self.world.group.generation

    # --- what always holds

    @invariant()
    def generations_only_grow(self) -> None:
        if not hasattr(self, "world"):
            return
        self.collect()
        group = self.world.group
        assert group.generation >= self.highest_generation
        self.highest_generation = group.generation

    @invariant()
    def members_fit_the_state(self) -> None:
        if not hasattr(self, "world"):
            return
        group = self.world.group
        assert (group.state is GroupState.EMPTY) <= (not group.members.by_id)
        assert len(group.members) <= 2 * 4  # those of before, and those who have joined anew
        assert group.members.leader_id is None or group.members.leader_id in group.members
        for member in group.members:
            assert member.on_join is None or group.state is not GroupState.COMPLETING_REBALANCE
            assert member.on_sync is None or group.state is GroupState.COMPLETING_REBALANCE
        instances = Counter(m.instance_id for m in group.members if m.instance_id)
        assert all(count == 1 for count in instances.values())
        if group.state is GroupState.STABLE:
            owners = [m.assignment for m in group.members if m.assignment]
            assert len(owners) == len(set(owners))

    def teardown(self) -> None:
        """Let all members fall silent and storage finish: each request is answered."""
        if not hasattr(self, "world"):
            return
        self.world.auto_save = True
        while self.world.saves:
            self.world.saved()
        self.world.advance(LONG_MS)
        self.collect()
        assert self.asked == self.answered
        assert self.world.group.is_idle
        assert self.world.group.next_deadline_ms() is None


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)
