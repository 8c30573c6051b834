"""Shared subscriptions: the members of a group share what matches (MQTT 5.0 section 4.8.2).

A group reads the log as one: it has positions of its own, and each message goes to one member
that has room. ``round_robin`` deals what came together out in equal shares, ``sticky`` stays
with a member until its window is full, ``hash_topic`` gives a topic to the same member for as
long as the members stay the same, so that its order is kept.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal
from zlib import crc32

from adapters.mqtt.at_most_once import send_part
from adapters.mqtt.returned import Returned
from adapters.mqtt.subscription import Subscription
from adapters.mqtt.wire import PublishRun
from features.expiry import remaining_s

if TYPE_CHECKING:  # groups and sessions know each other
    from adapters.mqtt.client_session import ClientSession
    from adapters.mqtt.distributor import SubscriberMatch
    from adapters.mqtt.feeds import Feed
    from adapters.mqtt.session_services import SessionServices


class ShareGroup:
    """The members of ``$share/<name>/<filter>``; it reads as a session does (``catch_up``)."""

    __slots__ = (
        "behind",
        "client_id",
        "members",
        "name",
        "online",
        "positions",
        "returned",
        "services",
        "topic_filter",
        "turn",
    )

    is_group: Literal[True] = True

    def __init__(self, name: str, topic_filter: str, services: "SessionServices") -> None:
        self.name = name
        self.topic_filter = topic_filter
        self.services = services
        self.client_id = ""  # a group publishes nothing
        self.members: dict[ClientSession, Subscription] = {}
        self.online: list[ClientSession] = []
        self.behind: dict[int, int] = {}
        self.positions: dict[int, int] = {}  # while no member is connected
        self.returned: deque[Returned] = deque()
        self.turn = 0

    @property
    def key(self) -> tuple[str, str]:
        """What tells groups apart."""
        return self.name, self.topic_filter

    @property
    def written(self) -> str:
        """The filter as members write it: what a session knows the group by."""
        prefix = self.name if self.name == "$queue" else f"$share/{self.name}"
        return f"{prefix}/{self.topic_filter}"

    @property
    def is_kept(self) -> bool:
        """Whether a member's session outlives its connection, and so the group's positions."""
        return any(member.is_kept for member in self.members)

    @property
    def is_ready(self) -> bool:
        """See ``CatchUp``."""
        return any(member.is_ready for member in self.online)

    def offer(self, run: PublishRun, match: "SubscriberMatch", feed: "Feed | None") -> None:
        """Deal out what is new, or note from where on the log is to be read."""
        count = len(run.payloads)
        if feed is None or not run.qos:
            self._deal_once(run)
            return
        if feed.partition_id in self.behind:
            return
        taken = self.take(run, 0, count, match, feed)
        if taken < count:
            self.behind[feed.partition_id] = run.base_offset + taken

    def take(
        self,
        run: PublishRun,
        start: int,
        stop: int,
        match: "SubscriberMatch",  # noqa: ARG002 - each member has a subscription of its own
        feed: "Feed",
    ) -> int:
        """See ``CatchUp``."""
        if not run.qos:
            return stop - start
        expiry_s = None
        if run.expires_at_unix_ms:
            expiry_s = remaining_s(run.expires_at_unix_ms, self.services.clock.unix_ms())
            if not expiry_s:
                self.services.counters.expired += stop - start
                return stop - start
        if self.is_kept:
            self.services.dirty_groups.add(self)
        first = start
        while start < stop:
            members = self._candidates()
            if not members:
                break
            member = self._pick(members, run.topic)
            if not member.is_ready:
                break
            share = -(-(stop - first) // len(members)) if self._deals else stop - start
            subscription = self.members[member]
            qos = min(run.qos, subscription.qos)
            count = min(share, stop - start)
            identifiers = (subscription.identifier,) if subscription.identifier else ()
            retain = run.retain and subscription.retain_as_published
            if qos:
                count = min(count, member.outbox.room)
                member.send_run(
                    run,
                    start,
                    start + count,
                    qos=qos,
                    retain=retain,
                    identifiers=identifiers,
                    expiry_s=expiry_s,
                    partition_id=feed.partition_id,
                    group=self.written,
                )
            else:
                send_part(
                    member, run, start, start + count, retain=retain, identifiers=identifiers
                )
            start += count
        return start - first

    def _candidates(self) -> "Sequence[ClientSession]":
        """Return who may be picked: a topic that is one member's waits for that member."""
        if self.services.config.shared_strategy == "hash_topic":
            return self.online
        return [one for one in self.online if one.is_ready]

    @property
    def _deals(self) -> bool:
        return self.services.config.shared_strategy == "round_robin"

    def _pick(self, members: "Sequence[ClientSession]", topic: bytes) -> "ClientSession":
        strategy = self.services.config.shared_strategy
        if strategy == "hash_topic":
            return members[crc32(topic) % len(members)]
        if strategy == "round_robin":
            self.turn += 1
        return members[self.turn % len(members)]

    def _deal_once(self, run: PublishRun) -> None:
        """Give QoS 0 to members who read fast enough; a run in shares, as ``take`` does."""
        start, total = 0, len(run.payloads)
        members = [one for one in self.online if one.is_ready] or self.online
        while start < total and members:
            member = self._pick(members, run.topic)
            share = -(-total // len(members)) if self._deals else total
            subscription = self.members[member]
            stop = min(start + share, total)
            send_part(
                member,
                run,
                start,
                stop,
                retain=run.retain and subscription.retain_as_published,
                identifiers=(subscription.identifier,) if subscription.identifier else (),
            )
            start = stop

    def go_on(self) -> None:
        """A member may have room again."""
        if self.returned:
            self.services.deal_returned(self)
        if self.behind:
            self.services.catch_up(self)

    def on_skipped(self, count: int) -> None:
        """See ``CatchUp``."""
        self.services.counters.backlog_skipped += count
