"""The trie against the plain rule, under any adds and removes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.mqtt.subscriptions.filters import matches
from adapters.mqtt.subscriptions.subscription import Subscription
from adapters.mqtt.subscriptions.trie import (
    CACHED_TOPIC_BYTES_MAX,
    CACHED_TOPIC_COST,
    SubscriptionTrie,
)
from tests.support.examples import examples

LEVELS = st.sampled_from(["", "a", "b", "$SYS", "é"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = st.builds(
    lambda levels, end: "/".join(levels + end),
    st.lists(LEVELS | st.just("+"), max_size=4),
    st.sampled_from([[], ["#"]]),
).filter(bool)
CLIENTS = st.integers(1, 4)
CHANGES = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "match"]), FILTERS, CLIENTS, TOPICS),
    max_size=40,
)


def subscribers(trie: SubscriptionTrie[int], topic: str) -> list[int]:
    return sorted(match.subscriber for match in trie.match(topic.encode()).matches)


@settings(max_examples=examples(150), deadline=None)
@given(changes=CHANGES, cached_max=st.sampled_from([0, 40, 100_000]))
def test_the_trie_finds_what_the_plain_rule_finds(
    changes: list[tuple[str, str, int, str]], cached_max: int
) -> None:
    trie: SubscriptionTrie[int] = SubscriptionTrie(cached_matches_max=cached_max)
    plain: dict[tuple[str, int], Subscription] = {}
    for change, topic_filter, client, topic in changes:
        if change == "add":
            one = Subscription(topic_filter, qos=client % 3)
            assert trie.add(one, client) is plain.get((topic_filter, client))
            plain[topic_filter, client] = one
        elif change == "remove":
            removed = trie.remove(topic_filter, client)
            assert removed is plain.pop((topic_filter, client), None)

        found = {
            match.subscriber: set(match.subscriptions)
            for match in trie.match(topic.encode()).matches
        }
        expected: dict[int, set[Subscription]] = {}
        for (wanted, subscriber), one in plain.items():
            if matches(wanted, topic):
                expected.setdefault(subscriber, set()).add(one)
        assert found == expected
        assert len(trie) == len(plain)


@settings(max_examples=examples(50), deadline=None)
@given(filters=st.sets(FILTERS, max_size=20))
def test_nothing_is_left_of_what_was_removed(filters: set[str]) -> None:
    trie: SubscriptionTrie[int] = SubscriptionTrie()
    for topic_filter in filters:
        trie.add(Subscription(topic_filter), 1)

    for topic_filter in filters:
        assert trie.remove(topic_filter, 1) is not None

    assert len(trie) == 0
    assert trie._tree.root.is_empty()
    assert trie._exact == {}


def test_overlapping_subscriptions_are_one_delivery() -> None:
    """MQTT-3.3.4-2 (highest QoS) and MQTT-3.3.4-4 (all identifiers)."""
    trie: SubscriptionTrie[str] = SubscriptionTrie()
    trie.add(Subscription("#", qos=1, identifier=70), "c")
    trie.add(Subscription("a/b", qos=0, identifier=9, retain_as_published=True), "c")
    trie.add(Subscription("a/+", qos=2), "c")
    trie.add(Subscription("a/#", qos=0, identifier=70), "d")

    found = {match.subscriber: match for match in trie.match(b"a/b").matches}

    assert sorted(found) == ["c", "d"]
    assert (found["c"].qos, found["c"].identifiers) == (2, (70, 9))
    assert found["c"].retain_as_published
    assert (found["d"].qos, found["d"].identifiers) == (0, (70,))
    assert not found["d"].retain_as_published


def test_a_second_subscription_to_a_filter_replaces_the_first() -> None:  # MQTT-3.8.4-3
    trie: SubscriptionTrie[str] = SubscriptionTrie()
    first, second = Subscription("a/+", qos=2), Subscription("a/+", qos=0)
    trie.add(first, "c")

    assert trie.add(second, "c") is first

    (match,) = trie.match(b"a/b").matches
    assert (match.qos, match.subscriptions) == (0, (second,))
    assert len(trie) == 1


def test_no_local_holds_for_its_subscription_alone() -> None:  # MQTT-3.8.3-3
    trie: SubscriptionTrie[str] = SubscriptionTrie()
    trie.add(Subscription("a", qos=2, no_local=True), "c")
    trie.add(Subscription("+", qos=1, identifier=5), "c")
    trie.add(Subscription("a", no_local=True), "d")
    trie.add(Subscription("a"), "e")

    found = {match.subscriber: match for match in trie.match(b"a").matches}

    own = found["c"].for_own()
    assert own is not None
    assert (own.qos, own.identifiers) == (1, (5,))
    assert found["d"].for_own() is None
    assert found["e"].for_own() is found["e"]


def test_what_was_matched_once_is_found_again_with_its_plan() -> None:
    trie: SubscriptionTrie[int] = SubscriptionTrie()
    trie.add(Subscription("a/#"), 1)
    found = trie.match(b"a/b")
    found.plan = "made by whoever sends"

    trie.add(Subscription("other"), 2)  # an exact filter concerns its own topic alone
    trie.add(Subscription("b/#"), 2)  # few are remembered: each is checked

    assert trie.match(b"a/b") is found


def test_a_change_that_concerns_a_topic_makes_its_matches_anew() -> None:
    trie: SubscriptionTrie[int] = SubscriptionTrie()
    trie.add(Subscription("a/#"), 1)
    found, revision = trie.match(b"a/b"), trie.revision

    trie.add(Subscription("a/b"), 2)

    assert trie.revision > revision
    assert trie.match(b"a/b") is not found
    assert subscribers(trie, "a/b") == [1, 2]


def test_removing_what_is_not_there_changes_nothing() -> None:
    trie: SubscriptionTrie[int] = SubscriptionTrie()
    trie.add(Subscription("a/+"), 1)
    revision = trie.revision

    assert trie.remove("a/+", 2) is None
    assert trie.remove("a/+/c", 1) is None
    assert trie.remove("a", 1) is None
    assert (trie.revision, len(trie)) == (revision, 1)


def test_remembered_matches_are_bounded() -> None:
    topics_max = 50
    trie: SubscriptionTrie[int] = SubscriptionTrie(
        cached_matches_max=topics_max * (CACHED_TOPIC_COST + 1)
    )
    trie.add(Subscription("#"), 1)

    for number in range(1_000):
        assert subscribers(trie, f"t/{number}") == [1]
        assert trie.cached_topics <= topics_max + 1


def test_a_huge_topic_name_is_not_remembered() -> None:
    trie: SubscriptionTrie[int] = SubscriptionTrie()
    trie.add(Subscription("+"), 1)

    assert subscribers(trie, "x" * (CACHED_TOPIC_BYTES_MAX + 1)) == [1]

    assert trie.cached_topics == 0


def test_filters_of_65535_bytes_nest_no_calls() -> None:
    trie: SubscriptionTrie[int] = SubscriptionTrie()
    deep = "/".join("a" * 32_768)
    trie.add(Subscription(deep[:-1] + "+"), 1)
    trie.add(Subscription(deep[:-1] + "#"), 2)
    trie.add(Subscription("+/" * 32_767 + "+"), 3)

    assert subscribers(trie, deep) == [1, 2, 3]
    del trie  # The chain of nodes goes at once, which must not nest calls either.
