"""Fan-out: each run is matched once, encoded once per form and written once per receiver.

A delivery plan is made once for a set of matches and a QoS, and cached beside the matches. A run
then costs one lookup, and one write for each receiver.
"""

from adapters.mqtt.counters import Counters
from adapters.mqtt.delivery.at_most_once import (
    EXPIRED,
    expiry_s_of,
    is_held_back,
    send_fitting,
    send_once,
)
from adapters.mqtt.delivery.ended_index import EndedIndex
from adapters.mqtt.delivery.publish_forms import form_of
from adapters.mqtt.ports import FeedPort, GroupPort, SessionPort, Subscriber, SubscriberMatch
from adapters.mqtt.subscriptions.trie import MatchSet, SubscriptionTrie
from adapters.mqtt.wire import MixedTopicPublishes, PublishRun, Version
from gateway.clock import Clock


class _SameForm:
    """Sessions that get a run at QoS 0 as the same bytes."""

    __slots__ = ("identifiers", "retain", "sessions", "version")

    def __init__(self, version: Version, identifiers: tuple[int, ...], *, retain: bool) -> None:
        self.version = version
        self.retain = retain
        self.identifiers = identifiers
        self.sessions: list[SessionPort] = []


class _Plan:
    """Delivery plan for runs of one QoS and retain flag and one set of matches.

    ``single``: the form of the only receiver. It gets packets of QoS 0 as they came, if they came
    in its version.
    """

    __slots__ = ("each", "groups", "same_forms", "single", "windowed")

    def __init__(self) -> None:
        self.single: _SameForm | None = None
        self.same_forms: list[_SameForm] = []
        self.each: list[tuple[SessionPort, SubscriberMatch]] = []  # aliases, or No Local
        self.windowed: list[tuple[SessionPort, SubscriberMatch]] = []  # QoS 1 and 2
        self.groups: list[tuple[GroupPort, SubscriberMatch]] = []


class _Plans:
    """The plans of one set of matches, and its matches by subscriber."""

    __slots__ = ("by_run", "by_subscriber")

    def __init__(self) -> None:
        self.by_run: dict[tuple[int, bool], _Plan] = {}
        self.by_subscriber: dict[Subscriber, SubscriberMatch] | None = None


class Distributor:
    """Delivers runs to connected receivers. See ``feed.Live`` and ``catch_up.Matcher``."""

    def __init__(self, clock: Clock, counters: Counters) -> None:
        self.trie: SubscriptionTrie[Subscriber] = SubscriptionTrie()
        self.ended = EndedIndex()  # used for messages that are read from the log only
        self._clock = clock
        self._counters = counters

    @property
    def wants_runs(self) -> bool:
        """See ``feed.Live``."""
        return len(self.trie) > 0

    def deliver(self, run: PublishRun, feed: "FeedPort | None" = None) -> None:
        """Send a run to all its receivers; without a ``feed`` it is of QoS 0 and not in the log."""
        matches = self.trie.match(run.topic)
        if not matches.matches:
            return
        expiry_s = expiry_s_of(run, self._clock)
        if expiry_s == EXPIRED:
            self._counters.expired += len(run.payloads)
            return
        plan = self._plan(matches, run)
        for same in plan.same_forms:
            self._send_same(run, same, expiry_s, feed)
        for session, match in plan.each:
            send_once(session, run, match, expiry_s, feed)
        for group, match in plan.groups:
            group.offer(run, match, feed)
        if feed is not None:
            for session, match in plan.windowed:
                if match.no_local and run.client_id == session.client_id:
                    _offer_own(session, run, match, expiry_s, feed)
                else:
                    session.offer(run, match, feed)

    def deliver_to(
        self,
        session: "SessionPort",
        run: PublishRun,
        match: "SubscriberMatch",
        feed: "FeedPort",
    ) -> None:
        """Send a run of QoS 0 to one receiver, as ``deliver`` sends it to all."""
        expiry_s = expiry_s_of(run, self._clock)
        if expiry_s == EXPIRED:
            self._counters.expired += len(run.payloads)
            return
        send_once(session, run, match, expiry_s, feed)

    def deliver_mixed_topics(self, mixed: MixedTopicPublishes, feed: "FeedPort") -> None:
        """Send mixed-topic messages of QoS 0 to all their receivers.

        Most of them have one receiver: it gets the packet as it came, without a ``PublishRun``.
        """
        like, packets = mixed.like, mixed.data
        match = self.trie.match
        version = _written_as(like.version)
        sent = 0
        for index, topic in enumerate(mixed.topics):
            matches = match(topic)
            if not matches.matches:
                continue
            single = self._plan(matches, like).single if packets else None
            if single is not None and single.version is version:
                session = single.sessions[0]
                connection = session.connection
                packet = packets[index]
                if (
                    connection is not None
                    and connection.out_bytes <= session.live_bytes_max
                    and len(packet) <= connection.packet_bytes_max
                ):
                    connection.send(packet)
                    sent += 1
                    continue
            self.deliver(mixed.runs()[index], feed)
        self._counters.publish_sent += sent

    def matches_by_follower(self, topic: bytes) -> "dict[Subscriber, SubscriberMatch]":
        """See ``catch_up.Matcher``."""
        matches = self.trie.match(topic)
        plans = _plans_of(matches)
        if plans.by_subscriber is None:
            plans.by_subscriber = {match.subscriber: match for match in matches.matches}
        return plans.by_subscriber

    def _send_same(
        self, run: PublishRun, same: _SameForm, expiry_s: int | None, feed: "FeedPort | None"
    ) -> None:
        form = form_of(
            run,
            version=same.version,
            qos=0,
            retain=same.retain,
            identifiers=same.identifiers,
            expiry_s=expiry_s,
        )
        data = form.data()
        largest_bytes = form.largest_bytes
        count = len(run.payloads)
        sent = 0
        for session in same.sessions:
            connection = session.connection
            if connection is None:
                continue
            if connection.out_bytes > session.live_bytes_max and is_held_back(
                session, run, feed
            ):
                continue
            if largest_bytes > connection.packet_bytes_max:
                send_fitting(
                    session, run, form, retain=same.retain, identifiers=same.identifiers
                )
            else:
                connection.send(data)
                sent += count
        self._counters.publish_sent += sent

    def _plan(self, matches: "MatchSet[Subscriber]", run: PublishRun) -> _Plan:
        plans = _plans_of(matches)
        key = (run.qos, run.retain)
        plan = plans.by_run.get(key)
        if plan is None:
            plan = plans.by_run[key] = _make_plan(matches, run)
        return plan


def _offer_own(
    session: "SessionPort",
    run: PublishRun,
    match: "SubscriberMatch",
    expiry_s: int | None,
    feed: "FeedPort",
) -> None:
    """Offer a session its own messages, by its subscriptions that have no No Local."""
    own = match.for_own()
    if own is None:
        return
    if own.qos:
        session.offer(run, own, feed)
    else:
        send_once(session, run, own, expiry_s, feed)


def _plans_of(matches: "MatchSet[Subscriber]") -> _Plans:
    plans = matches.plan
    if plans is None:
        plans = matches.plan = _Plans()
    assert isinstance(plans, _Plans)
    return plans


def _written_as(version: Version) -> Version:
    """Return the version with the same PUBLISH packets: 3.1 has those of 3.1.1."""
    return Version.V5 if version is Version.V5 else Version.V3_1_1


def _make_plan(matches: "MatchSet[Subscriber]", run: PublishRun) -> _Plan:
    plan = _Plan()
    forms: dict[tuple[object, ...], _SameForm] = {}
    for match in matches.matches:
        subscriber = match.subscriber
        if subscriber.is_group:
            plan.groups.append((subscriber, match))
            continue
        connection = subscriber.connection
        if connection is None:
            continue
        if min(match.qos, run.qos):
            plan.windowed.append((subscriber, match))
        elif connection.topic_alias_maximum or match.no_local:
            plan.each.append((subscriber, match))
        else:
            retain = run.retain and match.retain_as_published
            version = _written_as(connection.version)
            form = (version, retain, match.identifiers)
            same = forms.get(form)
            if same is None:
                same = forms[form] = _SameForm(version, match.identifiers, retain=retain)
                plan.same_forms.append(same)
            same.sessions.append(subscriber)
    if len(matches.matches) == len(plan.same_forms) == 1:
        same = plan.same_forms[0]
        if not (same.retain or same.identifiers):
            plan.single = same
    return plan
