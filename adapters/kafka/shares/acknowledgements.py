"""Acknowledgements of a request: checked, applied by partition, and awaited."""

from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from adapters.kafka.access.authorization import topic_for
from adapters.kafka.codecs.current_leader import CurrentLeader, current_leader
from adapters.kafka.codecs.share_fetch_codec import AcknowledgedPartition, AcknowledgementBatch
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import (
    GatewayError,
    InvalidRequest,
    StorageUnavailable,
    TopicNotFound,
    as_value,
    public_text,
)
from gateway.groups.model import GroupName
from gateway.shares.partition import Acknowledged, AcknowledgeType, SharePartition

TYPE_MAX: int = AcknowledgeType.RENEW


class AcknowledgeOutcome:
    """Outcome for one partition: ``code`` is set when it is known."""

    __slots__ = ("code", "leader", "message", "number", "topic_id")

    def __init__(self, topic_id: UUID, number: int) -> None:
        self.topic_id = topic_id
        self.number = number
        self.code = ErrorCode.NONE
        self.message: str | None = None
        self.leader: CurrentLeader | None = None

    def fail(self, error: GatewayError) -> None:
        """Note an error."""
        self.code = code_of(error)
        self.message = public_text(error)
        self.leader = current_leader(error)


class Acknowledgements:
    """Acknowledgements of one request; ``on_done`` runs once, after ``end`` and all outcomes."""

    def __init__(
        self, session: Session, group: GroupName, holder: int, *, renews: bool
    ) -> None:
        self._session = session
        self._group = group
        self._holder = holder
        self._renews = renews
        self._waits_for = 1
        self._on_done: Callable[[], None] | None = None
        self.outcomes: list[AcknowledgeOutcome] = []

    def take(self, topics: Sequence[tuple[UUID, Sequence[AcknowledgedPartition]]]) -> None:
        """Apply the acknowledgements of some partitions."""
        for topic_id, partitions in topics:
            for asked in partitions:
                if asked.batches:
                    outcome = AcknowledgeOutcome(topic_id, asked.number)
                    self.outcomes.append(outcome)
                    self._take_one(outcome, asked.batches)

    def end(self, on_done: Callable[[], None]) -> None:
        """Call ``on_done`` when all outcomes are known, maybe before this returns."""
        self._on_done = on_done
        self._arrived()

    def _take_one(
        self, outcome: AcknowledgeOutcome, batches: Sequence[AcknowledgementBatch]
    ) -> None:
        try:
            checked = check_batches(batches, may_renew=self._renews)
            found = find_partition(self._session, self._group, outcome.topic_id, outcome.number)
            self._waits_for += 1
            try:
                found.acknowledge(checked, partial(self._settled, outcome), holder=self._holder)
            except GatewayError:
                self._waits_for -= 1
                raise
        except GatewayError as error:
            outcome.fail(as_value(error))

    def _settled(self, outcome: AcknowledgeOutcome, error: StorageUnavailable | None) -> None:
        if error is not None:
            outcome.fail(error)
        self._arrived()

    def _arrived(self) -> None:
        self._waits_for -= 1
        if not self._waits_for and self._on_done is not None:
            self._on_done()


def find_partition(
    session: Session, group: GroupName, topic_id: UUID, number: int
) -> SharePartition:
    """Return a partition of a group that the session may read.

    Errors: ``UnknownTopicId``, ``TopicNotFound``, ``Unauthorized``, ``NotLeader``.
    """
    topic = topic_for(session, topic_id, Operation.READ)
    if topic.is_internal:
        msg = f"{topic.name.name} is the gateway's own"
        raise TopicNotFound(msg)
    return session.node.shares.partition(group, topic, number)


def check_batches(
    batches: Sequence[AcknowledgementBatch], *, may_renew: bool
) -> list[Acknowledged]:
    """Return batches that ascend, with one type or as many as offsets.

    Error: ``InvalidRequest``.
    """
    checked: list[Acknowledged] = []
    end = -1
    for first, last, types in batches:
        if not end < first <= last:
            msg = f"offsets {first} to {last} do not follow {end}"
            raise InvalidRequest(msg)
        if len(types) not in {1, last - first + 1}:
            msg = f"{len(types)} acknowledge types for offsets {first} to {last}"
            raise InvalidRequest(msg)
        if max(types) > TYPE_MAX:
            msg = f"acknowledge type {max(types)} is unknown"
            raise InvalidRequest(msg)
        if AcknowledgeType.RENEW in types and not may_renew:
            raise InvalidRequest("locks are not renewed by this request")
        checked.append(Acknowledged(first, last, types))
        end = last
    return checked
