"""A group under test with its clients: what each asked, and what it was told."""

from collections.abc import Sequence
from typing import Any

from gateway.errors import GatewayError
from gateway.groups.group import Group
from gateway.groups.join import join
from gateway.groups.model import GroupName, JoinRequest, JoinResult, SyncResult

SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000
SIZE_MAX = 5


def subscription(*topics: str) -> bytes:
    """Kafka's ConsumerProtocolSubscription, version 0."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\x00\x00" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


RANGE = (("range", subscription("t")),)


def request(member_id: str = "", **changes: Any) -> JoinRequest:
    """A join with values that are usual; v4 and later, so the first one only asks for an id."""
    return JoinRequest(
        member_id,
        instance_id=None,
        client_id="app",
        client_host="/127.0.0.1",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        protocol_type="consumer",
        protocols=RANGE,
        needs_known_member_id=True,
    )._replace(**changes)


class GroupWorld:
    """One ``Group``, a clock that is a number, and storage that is done when told."""

    def __init__(self, *, delay_ms: int = 0, size_max: int = SIZE_MAX) -> None:
        self.group = Group(
            GroupName("default", "g"), initial_delay_ms=delay_ms, size_max=size_max
        )
        self.now_ms = 1_000
        self.saves: list[Any] = []
        self.auto_save = True
        self._ids = 0

    def join(self, member_id: str = "", **changes: Any) -> list[JoinResult]:
        """Send a join; the list gets the answer, now or later. Refusals are raised."""
        answers: list[JoinResult] = []
        self._ids += 1
        try:
            join(
                self.group,
                request(member_id, **changes),
                f"m{self._ids}",
                answers.append,
                self.now_ms,
            )
        finally:
            self.settle()
        return answers

    def join_new(self, **changes: Any) -> list[JoinResult]:
        """Join as clients older than KIP-394 and static members do: in one step."""
        return self.join(needs_known_member_id=False, **changes)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        instance_id: str | None = None,
    ) -> list[SyncResult]:
        answers: list[SyncResult] = []
        try:
            self.group.sync(
                member_id,
                instance_id,
                generation,
                assignments or {},
                answers.append,
                self.now_ms,
            )
        finally:
            self.settle()
        return answers

    def heartbeat(self, member_id: str, generation: int) -> None:
        self.group.heartbeat(member_id, None, generation, self.now_ms)

    def leave(self, member_id: str, instance_id: str | None = None) -> None:
        self.group.leave(member_id, instance_id, self.now_ms)
        self.settle()

    def advance(self, ms: int) -> None:
        """Let time pass, ticking at every deadline on the way, as the runtime does."""
        end_ms = self.now_ms + ms
        while True:
            due_ms = self.group.next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self.group.tick(self.now_ms)
            self.settle()
        self.now_ms = end_ms

    def settle(self) -> None:
        """Take what is to be stored, and store it at once unless ``auto_save`` is off."""
        save = self.group.take_save()
        if save is not None:
            self.saves.append(save)
            if self.auto_save:
                self.saved()

    def saved(self, error: GatewayError | None = None) -> None:
        """The oldest save is done."""
        for callback in self.saves.pop(0):
            callback(error, self.now_ms)
        self.settle()

    # --- whole rounds

    def stable(self, count: int, **changes: Any) -> list[str]:
        """Bring ``count`` members in and sync them; return their ids, the leader's first."""
        waiting = [self.join_new(**changes) for _ in range(count)]
        self.advance(DELAY_MS * 2)
        results = [answers[0] for answers in waiting]
        self.sync_all(results)
        return [result.member_id for result in results]

    def sync_all(self, results: Sequence[JoinResult]) -> list[SyncResult]:
        """Sync everyone; each member is assigned its own id."""
        assignments = {result.member_id: result.member_id.encode() for result in results}
        waiting = [
            self.sync(
                result.member_id,
                result.generation,
                assignments if result.leader_id == result.member_id else None,
            )
            for result in results
        ]
        return [answers[0] for answers in waiting]

    def sync_all_static(self, results: Sequence[JoinResult], instances: Sequence[str]) -> None:
        """Sync static members; each is assigned its own id."""
        assignments = {result.member_id: result.member_id.encode() for result in results}
        for result, instance_id in zip(results, instances, strict=True):
            self.sync(result.member_id, result.generation, assignments, instance_id)
