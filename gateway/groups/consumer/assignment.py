"""Input of an assignor, and the changes of a group that are to be stored."""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from gateway.groups.consumer.assignors import Assignor
from gateway.groups.consumer.model import ConsumerMember, Subscriber, Targets


class AssignmentInput(NamedTuple):
    """Input of an assignor, as of a group epoch."""

    epoch: int
    assignor_name: str
    assignor: Assignor
    subscribers: list[Subscriber]
    counts: Mapping[UUID, int]

    @property
    def size(self) -> int:
        """Members, partitions and subscriptions to topics: what an assignor looks at."""
        topics = sum(len(subscriber.topics) for subscriber in self.subscribers)
        return len(self.subscribers) + sum(self.counts.values()) + topics

    def run(self) -> Targets:
        """Return the targets; in any thread."""
        if not self.subscribers:
            return {}
        return self.assignor(self.subscribers, self.counts)


class GroupChanges(NamedTuple):
    """Members to be stored, ids of those removed, and whether the group itself changed."""

    members: list[ConsumerMember]
    removed: list[str]
    has_group: bool
