"""Topics that the members of a group of KIP-848 read, by their names and patterns."""

from collections.abc import Callable, Mapping
from hashlib import blake2b
from uuid import UUID

from gateway.errors import GroupFull
from gateway.groups.consumer.model import (
    NO_NAMES,
    ConsumerMember,
    Heartbeat,
    Partitions,
    SubscriptionLimits,
    TopicSource,
)
from gateway.groups.consumer.patterns import GroupPatterns


class Subscriptions:
    """Subscriptions of the members in ``by_id``, which the group changes."""

    def __init__(self, by_id: Mapping[str, ConsumerMember], limits: SubscriptionLimits) -> None:
        self._by_id = by_id
        self._names_max = limits.names_max
        self.patterns = GroupPatterns(limits.patterns_max)
        self._lists: dict[frozenset[str], frozenset[str]] = {}
        self._found: Mapping[str, tuple[UUID, int]] = {}
        self._revision = -1

    def check(self, beat: Heartbeat) -> None:
        """Check what a member subscribes to. Errors: ``InvalidPattern``, ``GroupFull``."""
        if beat.regex:
            self.patterns.check(beat.regex)
        if not beat.names or beat.names in self._lists:
            return
        present = self._by_id.get(beat.member_id)
        count = len(beat.names) - (0 if present is None else len(present.names))
        if count + sum(map(len, self._lists)) > self._names_max:
            raise GroupFull(
                f"The members of a group subscribe to at most {self._names_max} names."
            )

    def note_change(self) -> None:
        """Let the next ``refresh`` look the topics up again."""
        self._revision = -1

    def refresh(self, topics: TopicSource, can_see: Callable[[str], bool]) -> bytes | None:
        """Look the topics up if some may have changed; return a hash of them, or None."""
        if self._revision == topics.revision:
            return None
        self._revision = topics.revision
        members = self._by_id.values()
        patterns = {member.regex for member in members if member.regex}
        self.patterns.refresh(patterns, topics, can_see)
        self._lists = {}
        for member in members:  # Members mostly read the same topics: one list serves them all.
            member.names = self._lists.setdefault(member.names, member.names)
        found = {}
        for name in sorted(self.names()):
            topic = topics.resolve(name)
            if topic is not None:
                found[name] = topic
        self._found = found
        return _hash_of(found)

    def names(self) -> frozenset[str]:
        """Return the topics that members read."""
        by_subscription = {(one.names, one.regex): one for one in self._by_id.values()}
        return NO_NAMES.union(*map(self._names_of, by_subscription.values()))

    @property
    def counts(self) -> dict[UUID, int]:
        """Numbers of partitions by topic."""
        return dict(self._found.values())

    def topics_of(self, member: ConsumerMember) -> frozenset[UUID]:
        """Return the uuids of the topics that a member reads."""
        found = self._found
        return frozenset(found[name][0] for name in self._names_of(member) if name in found)

    def readable(self, member: ConsumerMember) -> Partitions:
        """Return those of its partitions whose topics a member still reads."""
        uuids = self.topics_of(member)
        if all(topic in uuids for topic, _ in member.assigned):
            return member.assigned
        return frozenset(one for one in member.assigned if one[0] in uuids)

    def _names_of(self, member: ConsumerMember) -> frozenset[str]:
        if not member.regex:
            return member.names
        return member.names | self.patterns.names_of(member.regex)


def _hash_of(topics: Mapping[str, tuple[UUID, int]]) -> bytes:
    """Return a hash of topics that is the same in every process."""
    digest = blake2b(digest_size=8)
    for name, (uuid, count) in sorted(topics.items()):
        digest.update(name.encode() + b"\0" + uuid.bytes + count.to_bytes(4, "big"))
    return digest.digest()
