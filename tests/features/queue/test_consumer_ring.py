"""The ring of consumers against a plain model: a list that is sorted at every question."""

from hypothesis import given
from hypothesis import strategies as st

from features.queue.consumer_ring import ConsumerRing, share_of

MEMBERS = {"a": 0, "b": 0, "c": 0, "high": 5, "low": -1, "other": 5}
CALLS = st.lists(
    st.tuples(st.sampled_from(["ready", "away", "serve"]), st.sampled_from(sorted(MEMBERS))),
    max_size=60,
)


@given(calls=CALLS)
def test_the_first_is_of_the_highest_priority_and_was_served_longest_ago(
    calls: list[tuple[str, str]],
) -> None:
    ring: ConsumerRing[str] = ConsumerRing()
    ready: list[str] = []  # in order of their turns, of all priorities
    for call, name in calls:
        if call == "ready":
            ring.set_ready(name, MEMBERS[name], is_ready=True)
            ready += [] if name in ready else [name]
        elif call == "away":
            ring.set_ready(name, MEMBERS[name], is_ready=False)
            ready = [one for one in ready if one != name]
        elif (first := ring.first()) is not None:
            ring.served(first, MEMBERS[first])
            ready = [one for one in ready if one != first] + [first]
        highest = max((MEMBERS[one] for one in ready), default=0)
        top = [one for one in ready if MEMBERS[one] == highest]
        assert ring.first() == (top[0] if top else None)
        assert ring.first_count == len(top)


@given(counts=st.lists(st.integers(0, 1_000), min_size=1), members=st.integers(1, 50))
def test_shares_of_a_turn_take_all_that_is_ready(counts: list[int], members: int) -> None:
    for ready_count in counts:
        share = share_of(ready_count, members, share_max=10_000)
        assert share * members >= ready_count
        assert share == 1 or (share - 1) * members < ready_count


def test_a_share_is_bounded() -> None:
    assert share_of(1_000_000, 2, share_max=100) == 100
