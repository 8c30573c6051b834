"""Topics that the followers that are behind may want."""

from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.mqtt.reading import wanted_topics as wanted_module
from adapters.mqtt.reading.wanted_topics import KNOWN_TOPIC_BYTES_MAX, WantedTopics
from adapters.mqtt.sessions.client_session import ClientSession
from adapters.mqtt.shared_subscriptions.groups import ShareGroup
from adapters.mqtt.subscriptions.ended import EndedSubscription, EndedSubscriptions
from adapters.mqtt.subscriptions.filters import matches
from adapters.mqtt.subscriptions.subscription import Subscription
from tests.support.examples import examples

LEVELS = st.sampled_from(["a", "b", "", "é"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = st.builds(
    lambda levels, last: "/".join([*levels, *last]),
    st.lists(LEVELS | st.just("+"), min_size=1, max_size=3),
    st.sampled_from([[], [], ["#"]]),
).filter(bool)


class Follower:
    """A session as far as its filters go."""

    is_group = False
    ended: EndedSubscriptions[Any] | None = None
    wanted_filters = ClientSession.wanted_filters

    def __init__(self, *subscriptions: Subscription) -> None:
        self.subscriptions = dict(enumerate(subscriptions))


def follower(*filters: str, qos: int = 1) -> ClientSession:
    subscriptions = [Subscription(one, qos=qos) for one in filters]
    return cast("ClientSession", Follower(*subscriptions))


def wants(wanted: WantedTopics, topic: str) -> bool:
    ask = wanted.wants
    return ask is None or ask(topic.encode())


@settings(max_examples=examples(200), deadline=None)
@given(sets=st.lists(st.lists(FILTERS, max_size=4), max_size=4), topics=st.lists(TOPICS))
def test_what_matches_a_filter_is_wanted_and_nothing_else(
    sets: list[list[str]], topics: list[str]
) -> None:
    wanted = WantedTopics()
    filters: list[str] = []
    for some in sets:
        wanted.add(follower(*some))
        filters += some
        for topic in topics:  # asked in between, so that what is remembered has to follow
            assert wants(wanted, topic) == any(matches(one, topic) for one in filters)


def test_all_is_wanted_by_who_follows_all() -> None:
    wanted = WantedTopics()
    wanted.add(follower("#"))
    assert wanted.wants is None


def test_what_is_delivered_at_qos_0_is_not_read_again() -> None:
    wanted = WantedTopics()
    wanted.add(follower("#", qos=0))
    assert not wants(wanted, "a")


def test_what_an_ended_subscription_matched_is_wanted() -> None:
    wanted = WantedTopics()
    session = Follower()
    owner = cast("ClientSession", session)
    session.ended = EndedSubscriptions()
    for number, topic_filter in enumerate(("a", "b/+")):
        subscription = Subscription(topic_filter, qos=1)
        session.ended.add(
            EndedSubscription(owner, number, subscription, starts={1: 0}, ends={1: 9})
        )
    wanted.add(owner)
    assert [wants(wanted, topic) for topic in ("a", "b/c", "c")] == [True, True, False]


def test_a_group_wants_its_filter_and_its_members_do_not() -> None:
    wanted = WantedTopics()
    wanted.add(cast("ClientSession", Follower(Subscription("a", group="g", qos=1))))
    assert not wants(wanted, "a")

    wanted.add(ShareGroup("g", "a", context=None))  # type: ignore[arg-type]  # it is not asked
    assert wants(wanted, "a")


def test_who_came_later_was_not_asked_for_earlier() -> None:
    wanted, first, second = WantedTopics(), follower("a"), follower("b")
    number = wanted.add(first)
    revision = wanted.revision

    assert number < revision
    assert revision <= wanted.add(second) < wanted.revision
    assert wanted.add(first) == number

    wanted.discard(first)
    assert len(wanted) == 1
    assert wanted.add(first) > number


def test_a_million_topics_leave_no_trace() -> None:
    wanted = WantedTopics()
    wanted.add(follower("a/+"))
    ask = wanted.wants
    assert ask is not None
    for number in range(wanted_module.KNOWN_TOPICS_MAX + 10):
        assert not ask(b"b/%d" % number)
    assert ask(b"a/" + b"x" * KNOWN_TOPIC_BYTES_MAX)

    assert len(wanted._known) == 10
