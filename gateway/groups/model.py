"""Types of consumer groups: states, members, requests and answers.

Names follow Kafka's classic group protocol (KIP-62, KIP-345, KIP-394, KIP-814). Durations are
milliseconds; ``now_ms`` and deadlines are monotonic.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from gateway.errors import GatewayError

NO_GENERATION: Final = -1
CONSUMER_PROTOCOL: Final = "consumer"  # the protocol type whose metadata are subscriptions
SHARE_PROTOCOL: Final = "share"  # of share groups (KIP-932)


class GroupName(NamedTuple):
    """Full name of a group: namespace and group id."""

    namespace: str
    name: str


class GroupState(Enum):
    """State of a group; the values are the names that Kafka's admin APIs show.

    ``ASSIGNING`` and ``RECONCILING`` are those of groups that follow KIP-848.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    DEAD = "Dead"


TRANSITIONS: Final[dict[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}
    ),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}

# A protocol is an assignor: its name, and what the member says to it (its subscription).
Protocols = tuple[tuple[str, bytes], ...]


class JoinRequest(NamedTuple):
    """Join request of a member. ``member_id`` is empty when it has none yet."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_known_member_id: bool = False  # KIP-394: the peer joins in two steps
    can_skip_assignment: bool = False  # KIP-814


class JoinedMember(NamedTuple):
    """Member in the list that only the leader gets."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """Answer to a join. With an ``error`` only ``member_id`` has a meaning."""

    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()
    error: GatewayError | None = None


class SyncResult(NamedTuple):
    """Answer to a sync: the member's own assignment, made by the leader."""

    assignment: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None
    error: GatewayError | None = None


OnJoined = Callable[[JoinResult], None]
OnSynced = Callable[[SyncResult], None]


class Member:
    """One member. While ``on_join`` or ``on_sync`` is set, it waits for that answer."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "instance_id",
        "is_new",
        "member_id",
        "on_join",
        "on_sync",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(self, member_id: str, request: JoinRequest) -> None:
        self.member_id = member_id
        self.instance_id = request.instance_id
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.protocol_type = request.protocol_type
        self.protocols = request.protocols
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.assignment = b""
        self.deadline_ms = 0
        self.is_new = True  # until its first join is answered it cannot send heartbeats
        self.on_join: OnJoined | None = None
        self.on_sync: OnSynced | None = None

    @property
    def is_static(self) -> bool:
        """Whether it has a ``group.instance.id``: absence up to a session timeout is allowed."""
        return self.instance_id is not None

    @property
    def is_held(self) -> bool:
        """Whether it waits for an answer of the node, and so need not send heartbeats."""
        return not self.is_new and (self.on_join is not None or self.on_sync is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return its metadata for the assignor ``protocol_name``; empty if there is none."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def answer_join(self, result: JoinResult) -> bool:
        """Answer its waiting join, if there is one; True when there was."""
        on_join, self.on_join = self.on_join, None
        if on_join is None:
            return False
        on_join(result)
        return True

    def answer_sync(self, result: SyncResult) -> bool:
        """Answer its waiting sync, if there is one; True when there was."""
        on_sync, self.on_sync = self.on_sync, None
        if on_sync is None:
            return False
        on_sync(result)
        return True
