"""Types of consumer groups of the new protocol (KIP-848): heartbeats, members, assignments.

Durations are milliseconds; ``now_ms`` and deadlines are monotonic. Epochs are int32.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple, Protocol
from uuid import UUID

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
NO_EPOCH: Final = -1

TopicPartition = tuple[UUID, int]
"""A topic's uuid and a partition's number."""

Partitions = frozenset[TopicPartition]
NO_PARTITIONS: Final[Partitions] = frozenset()
NO_NAMES: Final[frozenset[str]] = frozenset()


class SubscriptionLimits(NamedTuple):
    """Bounds of what the members of one group subscribe to."""

    names_max: int = 20_000
    """Names in the different lists of members: some 10 us each at a join or leave."""
    patterns_max: int = 32
    """Different patterns of members."""


class MemberState(Enum):
    """State of a member on its way to its target assignment."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """The member has not confirmed yet that it gave partitions up."""
    UNRELEASED_PARTITIONS = 2
    """The member waits for partitions that another has not given up yet."""


class Heartbeat(NamedTuple):
    """Heartbeat of a member; fields that are None have not changed since the last one.

    ``epoch`` is 0 to join, -1 to leave, -2 when a static member leaves for a while.
    ``rebalance_timeout_ms`` is -1 when unchanged. ``regex`` may be empty: no pattern any more.
    ``can_see`` tells whether the member may describe a topic that its pattern matches.
    """

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    names: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    can_see: Callable[[str], bool] = lambda _: True

    @property
    def is_full(self) -> bool:
        """Whether it states all that the coordinator knows of a member."""
        return (
            self.rebalance_timeout_ms != -1
            and (self.names is not None or self.regex is not None)
            and self.owned is not None
        )


class HeartbeatResult(NamedTuple):
    """Answer to a heartbeat; ``assignment`` is None when it has not changed."""

    member_id: str
    epoch: int
    assignment: Partitions | None = None


class TopicSource(Protocol):
    """Topics as a group sees them; ``revision`` grows with each change of any topic."""

    @property
    def revision(self) -> int: ...  # noqa: D102

    def resolve(self, name: str) -> tuple[UUID, int] | None:
        """Return the uuid and the partition count of a topic; None if there is none."""

    def names(self) -> frozenset[str]:
        """Return the names that patterns may match; the same object until topics change."""


class ConsumerMember:
    """One member: its subscription, and how far it is on the way to its target."""

    __slots__ = (
        "assigned",
        "assignor",
        "client_host",
        "client_id",
        "deadline_ms",
        "epoch",
        "instance_id",
        "member_id",
        "names",
        "pending",
        "previous_epoch",
        "rack_id",
        "rebalance_timeout_ms",
        "regex",
        "revocation_deadline_ms",
        "since_epochs",
        "state",
        "target",
    )

    def __init__(self, member_id: str, instance_id: str | None = None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.rebalance_timeout_ms = -1
        self.names = NO_NAMES
        self.regex = ""
        self.assignor: str | None = None
        self.epoch = 0
        self.previous_epoch = NO_EPOCH
        self.state = MemberState.STABLE
        self.assigned = NO_PARTITIONS
        """Partitions that it may use now."""
        self.pending = NO_PARTITIONS
        """Partitions that it was asked to give up, and has not yet."""
        self.since_epochs: dict[TopicPartition, int] = {}
        """Epoch at which it got each of its partitions; not stored."""
        self.target = NO_PARTITIONS
        self.deadline_ms = 0
        self.revocation_deadline_ms: int | None = None


class Subscriber(NamedTuple):
    """Member as assignors see it: the topics it reads, and its present target."""

    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    target: Partitions


Targets = Mapping[str, Partitions]
"""Target assignments by member id."""
