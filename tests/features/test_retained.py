"""Topic names found by filter: as one by one, in order, and without looking at all of them."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from features import retained
from features.retained import LOOKS_PER_CALL_MAX, RetainedTopics


def is_match(topic: str, topic_filter: str) -> bool:
    """Section 4.7 by the book, one level at a time."""
    levels, wanted = topic.split("/"), topic_filter.split("/")
    if topic.startswith("$") and wanted[0] in {"+", "#"}:
        return False
    if wanted[-1] == "#":
        wanted.pop()
        levels = levels[: len(wanted)]
    return len(levels) == len(wanted) and all(
        one in {"+", level} for level, one in zip(levels, wanted, strict=True)
    )


def all_of(topics: RetainedTopics, topic_filter: str, *, count_max: int = 1_000) -> list[str]:
    """Return all matches, by as many calls as needed."""
    found: list[bytes] = []
    after: bytes | None = b""
    while after is not None:
        some, after = topics.match(topic_filter, after=after, count_max=count_max)
        assert len(some) <= count_max
        found += some
    return [topic.decode() for topic in found]


def index_of(*topics: str) -> RetainedTopics:
    return RetainedTopics(topic.encode() for topic in topics)


LEVELS = st.sampled_from(["", "a", "b", "a!", "a0", "a.b", "$a", "ä", "$SYS"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = st.builds(
    lambda levels, end: "/".join([*levels, *end]),
    st.lists(LEVELS | st.just("+"), max_size=4),
    st.sampled_from([["#"], ["a"], ["+"]]),
)


@given(topics=st.sets(TOPICS, max_size=40), topic_filter=FILTERS, count_max=st.integers(1, 5))
@example(topics={"a", "a!", "a!/b", "a/b", "a0", "a0/b"}, topic_filter="+/b", count_max=1)
@example(topics={"a", "a!", "a/", "a/b", "a/b/c"}, topic_filter="a/#", count_max=2)
@example(topics={"!", "$SYS/a", "%", "a"}, topic_filter="#", count_max=3)
@example(topics={"a/a/c", "a/b/b"}, topic_filter="+/+/b", count_max=1)
@example(topics={"a/a!/b", "a/a/a!", "a/a/b"}, topic_filter="a/a/b", count_max=1)
def test_a_filter_finds_what_matches_in_order(
    topics: set[str], topic_filter: str, count_max: int
) -> None:
    found = all_of(index_of(*topics), topic_filter, count_max=count_max)

    expected = [topic for topic in topics if is_match(topic, topic_filter)]
    assert found == sorted(expected, key=str.encode)


def test_wildcards_first_do_not_find_system_topics() -> None:  # MQTT-4.7.2-1
    topics = index_of("$SYS/broker/uptime", "sport/tennis", "!a")

    assert all_of(topics, "#") == ["!a", "sport/tennis"]
    assert all_of(topics, "+/broker/uptime") == []
    assert all_of(topics, "$SYS/#") == ["$SYS/broker/uptime"]


def test_a_branch_includes_its_own_name() -> None:  # section 4.7.1.2
    topics = index_of("sport", "sport!", "sport/tennis", "sport/tennis/1", "sports")

    assert all_of(topics, "sport/#") == ["sport", "sport/tennis", "sport/tennis/1"]


def test_names_come_and_go() -> None:
    topics = index_of("b")
    topics.put(b"a")
    topics.put(b"a")
    topics.put(b"c")
    topics.remove(b"b")
    topics.remove(b"never there")

    assert all_of(topics, "#") == ["a", "c"]
    assert len(topics) == 2


def test_a_name_is_held_once() -> None:
    first, second = bytes(bytearray(b"a/b")), bytes(bytearray(b"a/b"))
    topics = RetainedTopics([first])

    topics.put(second)

    assert topics.find(second) is first
    assert topics.find(b"a/c") is None


def test_names_are_walked_in_order() -> None:
    topics = index_of("a", "b", "c", "d")

    assert topics.after(b"", count_max=2) == [b"a", b"b"]
    assert topics.after(b"b", count_max=9) == [b"c", b"d"]


def test_what_comes_meanwhile_does_not_disturb_the_scan() -> None:
    topics = index_of("a/1", "a/3", "a/5")
    _, after = topics.match("a/+", count_max=2)
    topics.put(b"a/2")
    topics.put(b"a/6")
    topics.remove(b"a/3")
    assert after is not None

    assert topics.match("a/+", after=after, count_max=9)[0] == [b"a/5", b"a/6"]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The names that were looked at."""
    seen: list[bytes] = []
    where_next = retained._where_next

    def spy(topic: bytes, wanted: list[bytes]) -> bytes | None:
        seen.append(topic)
        return where_next(topic, wanted)

    monkeypatch.setattr(retained, "_where_next", spy)
    return seen


def test_branches_that_cannot_match_are_jumped_over(looks: list[bytes]) -> None:
    topics = RetainedTopics(b"%d/%d/%d" % (a, b, c) for a in range(10) for b in range(10)
                            for c in range(10))  # fmt: skip

    assert len(all_of(topics, "4/+/5")) == 10
    assert len(looks) < 50
    looks.clear()
    assert len(all_of(topics, "4/#")) == 100
    assert len(looks) <= 3


def test_one_call_looks_at_a_bounded_number_of_names(looks: list[bytes]) -> None:
    topics = RetainedTopics(b"%04d/a" % n for n in range(1_000))

    found, after = topics.match("+/b", count_max=10)

    assert found == []
    assert after is not None
    assert len(looks) <= LOOKS_PER_CALL_MAX
    assert all_of(topics, "+/b") == []
