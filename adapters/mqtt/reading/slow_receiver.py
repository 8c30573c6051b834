"""A receiver that is too slow for QoS 0: its position in the log, and what it reads there."""

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from adapters.mqtt.delivery.at_most_once import (
    EXPIRED,
    expiry_s_of,
    fitting_parts,
    form_for,
)
from adapters.mqtt.delivery.ended_index import AnyMatch, MatchWithEnded
from adapters.mqtt.delivery.mixed_topics import HEAD_BYTES_MAX
from adapters.mqtt.delivery.publish_forms import PacketHeads, heads_of, join_at_most_once
from adapters.mqtt.ports import FeedPort, SessionPort, SubscriberMatch
from adapters.mqtt.records.mixed_topic_batch import MixedTopicBatch
from adapters.mqtt.records.native_runs import was_live
from adapters.mqtt.subscriptions.ended import EndedSubscription
from adapters.mqtt.subscriptions.subscription import Subscription
from adapters.mqtt.wire import PublishRun, Version

_NOT_KNOWN: Final = -1
_ALWAYS: Final = -1  # less than any buffer has: see ``ClientSession.live_bytes_max``


class SlowReceiverOwner(Protocol):
    """The slow receivers of one feed; see ``slow_receivers``."""

    @property
    def feed(self) -> FeedPort:
        """The feed."""
        ...

    def is_beyond(self, offset: int) -> bool:
        """Return whether an offset is further back than the bounds allow."""
        ...

    def remove(self, slow_receiver: "SlowReceiver") -> None:
        """Remove a receiver that is behind no more."""
        ...


class SlowReceiver:
    """A connected session on one feed, which reads the log as a follower of ``CatchUp``.

    It gets the messages that are of QoS 0 for it from ``behind`` on. Of those that were delivered
    live, it gets only those at or after the offset ``unsent_from``: earlier ones were sent to it.
    Until that offset is known, ``number`` (a ``live_number``) stands for it.

    ``outstanding``: messages for it that are not sent yet. ``replaced``: subscriptions that were
    replaced meanwhile, by filter (MQTT-3.8.4-4).
    """

    __slots__ = (
        "behind",
        "number",
        "outstanding",
        "replaced",
        "session",
        "slow_receivers",
        "start",
        "unsent_from",
    )

    def __init__(
        self, session: "SessionPort", slow_receivers: SlowReceiverOwner, number: int, start: int
    ) -> None:
        self.session = session
        self.slow_receivers = slow_receivers
        self.number = number
        self.start = start
        self.unsent_from = _NOT_KNOWN
        self.behind: dict[int, int] = {}
        self.outstanding = 0
        self.replaced: dict[str, EndedSubscription[SessionPort]] = {}
        session.slow_receivers[slow_receivers.feed.partition_id] = self
        session.live_bytes_max = _ALWAYS

    @property
    def offset(self) -> int:
        """Offset that the receiver has reached in the log."""
        return self.behind.get(self.slow_receivers.feed.partition_id, self.start)

    @property
    def is_ready(self) -> bool:
        """See ``CatchUp``: ready while at most half of ``receiver_bytes_max`` waits for it."""
        session = self.session
        connection = session.connection
        return (
            self.unsent_from != _NOT_KNOWN
            and connection is not None
            and not connection.is_closing
            and connection.out_bytes <= session.context.receiver_bytes_max // 2
        )

    # --- begin and end

    def begin(self, unsent_from: int) -> None:
        """Begin to read the log at an offset that is known by now."""
        self.unsent_from = unsent_from
        self.behind[self.slow_receivers.feed.partition_id] = self.start
        self.session.context.catch_up(self)

    def go_on(self) -> None:
        """Go on with what waits: there may be room again."""
        if self.slow_receivers.is_beyond(self.offset):
            self.skip()
        else:
            self.session.context.catch_up(self)

    def skip(self) -> None:
        """Drop what it has not been sent, being too far back, and go on with what is new."""
        self.session.context.counters.dropped += self.outstanding
        self.leave()

    def leave(self) -> None:
        """End: the receiver has caught up, or its client has gone."""
        session, partition_id = self.session, self.slow_receivers.feed.partition_id
        session.slow_receivers.pop(partition_id, None)
        if not session.slow_receivers:
            session.live_bytes_max = session.context.receiver_bytes_max
        self.slow_receivers.remove(self)
        catch_up = session.context.feeds.catch_up(partition_id)
        if catch_up is not None:
            catch_up.discard(self)
        self.behind.clear()

    def on_skipped(self, count: int) -> None:
        """See ``CatchUp``: count messages that the log no longer has."""
        dropped = min(count, self.outstanding)
        self.session.context.counters.dropped += dropped
        self.outstanding -= dropped

    # --- messages

    def wanted_filters(self) -> Iterator[str]:
        """See ``FollowerPort``: filters of all subscriptions of the session that are not shared."""
        for subscription in self.session.subscriptions.values():
            if subscription.group is None:
                yield subscription.topic_filter

    def replace(self, subscription: Subscription, live: Mapping[int, int]) -> None:
        """Note that another subscription replaces one from the ``live`` offsets on."""
        partition_id = self.slow_receivers.feed.partition_id
        start, end = (one.get(partition_id, 0) for one in (subscription.starts, live))
        if max(start, self.offset) < end:
            self.replaced[subscription.topic_filter] = EndedSubscription(
                self.session,
                0,
                subscription.without_starts(),
                starts={partition_id: start},
                ends={partition_id: end},
            )

    def match_of(self, match: "SubscriberMatch") -> AnyMatch:
        """Return the match of the session, with the subscriptions that it had before."""
        replaced = self.replaced
        if not replaced:
            return match
        names = [one.topic_filter for one in match.subscriptions]
        ended = [replaced[name] for name in names if name in replaced]
        return MatchWithEnded(self.session, ended, match) if ended else match

    def take(
        self,
        run: PublishRun,
        start: int,
        stop: int,
        match: "SubscriberMatch",
        feed: FeedPort,  # noqa: ARG002 - it is the one that it is behind on
    ) -> int:
        """See ``CatchUp``."""
        count = stop - start
        if match.no_local and run.client_id == self.session.client_id:
            own = match.for_own()
            if own is None:
                return count
            match = own
        if min(run.qos, match.qos):
            return count
        if not run.qos and was_live(run):  # it was delivered live
            start = max(start, min(stop, self.unsent_from - run.base_offset))
        expiry_s = expiry_s_of(run, self.session.context.clock)
        if expiry_s == EXPIRED:
            self.session.context.counters.expired += stop - start
            self.outstanding -= stop - start
            return count
        while start < stop and self.is_ready:
            start = self._send(run, start, stop, match, expiry_s)
        return count - (stop - start)

    def take_mixed_topics(
        self,
        mixed: MixedTopicBatch,
        indexes: range,
        matches: "Mapping[PublishRun, SubscriberMatch]",
        feed: FeedPort,
    ) -> int | None:
        """See ``CatchUp``, and ``send_mixed_topics``, which does the same for QoS 1 and 2."""
        context, connection = self.session.context, self.session.connection
        start, stop, offset = indexes.start, indexes.stop, mixed.base_offset + indexes.start
        if connection is None or not self.is_ready:
            return start
        if connection.topic_alias_maximum or offset < self.unsent_from:
            return None
        kinds, payloads = mixed.kinds[start:stop], mixed.payloads[start:stop]
        room_bytes = connection.packet_bytes_max - max(map(len, payloads)) - HEAD_BYTES_MAX
        heads: dict[PublishRun, PacketHeads | None] = {}
        for kind, match in matches.items():
            if not all(one.counts(feed.partition_id, offset) for one in match.subscriptions):
                return None
            heads[kind] = found = self._heads(kind, match, connection.version)
            if found is not None and found.common_bytes > room_bytes:
                return None
        column = [heads.get(kind) for kind in kinds]
        sent = [
            (head, payload)
            for head, payload in zip(column, payloads, strict=True)
            if head is not None
        ]
        if sent:
            connection.send(join_at_most_once(*zip(*sent, strict=True)))
        context.counters.publish_sent += len(sent)
        self.outstanding -= len(sent)
        return stop

    def _heads(
        self, kind: PublishRun, match: "SubscriberMatch", version: Version
    ) -> PacketHeads | None:
        """Return the first bytes of packets of a kind; None when it is sent elsewhere."""
        if match.no_local and kind.client_id == self.session.client_id:
            own = match.for_own()
            if own is None:
                return None
            match = own
        if min(kind.qos, match.qos):
            return None
        retain = kind.retain and match.retain_as_published
        return heads_of(kind, version, 0, retain=retain, identifiers=match.identifiers)

    def _send(
        self,
        run: PublishRun,
        start: int,
        stop: int,
        match: "SubscriberMatch",
        expiry_s: int | None,
    ) -> int:
        """Send as many messages as there is room for if all are large, at least one.

        Return the index after the last one.
        """
        context, connection = self.session.context, self.session.connection
        assert connection is not None
        if connection.topic_alias_maximum:
            context.write_journals()  # aliases of this turn are set before they are used
        form = form_for(
            connection,
            run,
            qos=0,
            retain=run.retain and match.retain_as_published,
            identifiers=match.identifiers,
            expiry_s=expiry_s,
        )
        room_bytes = context.receiver_bytes_max - connection.out_bytes
        largest_bytes = min(form.largest_bytes, connection.packet_bytes_max)
        stop = min(stop, start + max(room_bytes // largest_bytes, 1))
        parts = fitting_parts(form, start, stop, connection.packet_bytes_max)
        sent = sum(end - at for at, end in parts)
        context.counters.too_large += stop - start - sent
        context.counters.publish_sent += sent
        for at, end in parts:
            connection.send(form.part(at, end))
        self.outstanding -= stop - start
        return stop
