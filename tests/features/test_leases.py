"""Rights that one holder has at a time, against a model and by the rules one at a time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.leases import Leases
from gateway.errors import Overloaded

Rights = Leases[str, str]


def new(leases_max: int = 100) -> Rights:
    return Leases(leases_max=leases_max)


def holder(leases: Rights, now_ms: int, resource: str = "r") -> str | None:
    grant = leases.grant_of(resource, now_ms)
    return None if grant is None else grant.holder


def test_a_right_ends_at_its_time_and_not_before() -> None:
    leases = new()
    assert leases.take("r", "ann", 1_000, span_ms=500) is not None

    assert leases.take("r", "bob", 1_499, span_ms=500) is None
    assert leases.tick(1_499, count_max=10).ended == []
    assert holder(leases, 1_499) == "ann"
    assert holder(leases, 1_500) is None
    assert [one.holder for one in leases.tick(1_500, count_max=10).ended] == ["ann"]
    assert leases.take("r", "bob", 1_500, span_ms=500) is not None


def test_a_renewal_keeps_the_number_and_a_new_grant_has_a_higher_one() -> None:
    leases = new()
    first = leases.take("r", "ann", 0, span_ms=500)
    renewed = leases.take("r", "ann", 400, span_ms=500)
    assert first is not None
    assert renewed is not None
    assert (renewed.number, renewed.ends_ms) == (first.number, 900)
    assert leases.tick(600, count_max=10).ended == []

    leases.release("r", "ann", 600)
    following = leases.take("r", "ann", 600, span_ms=500)
    assert following is not None
    assert following.number > first.number


def test_a_right_without_an_end_ends_with_its_holder() -> None:
    leases = new()
    leases.take("r", "ann", 0, span_ms=None)
    leases.take("s", "ann", 0, span_ms=10)
    assert leases.tick(10**12, count_max=10).ended[0].resource == "s"

    assert [one.resource for one in leases.end_holder("ann", 10**12).ended] == ["r"]
    assert len(leases) == 0


def test_the_next_holder_is_that_of_the_highest_priority_then_the_oldest() -> None:
    leases = new()
    leases.wait("r", "ann", 0, span_ms=None)
    for name, priority in (("bob", 0), ("cid", 5), ("dan", 5), ("eve", -1)):
        assert leases.wait("r", name, 1, span_ms=None, priority=priority) is None

    order = []
    current = "ann"
    while granted := leases.release("r", current, 2).granted:
        current = granted[0].holder
        order.append(current)
    assert order == ["cid", "dan", "bob", "eve"]
    assert leases.waiting_count == 0


def test_a_candidate_that_leaves_gets_nothing() -> None:
    leases = new()
    leases.wait("r", "ann", 0, span_ms=100)
    leases.wait("r", "bob", 0, span_ms=100)
    leases.wait("r", "cid", 0, span_ms=100)
    leases.wait("r", "bob", 0, span_ms=100)  # a second time changes nothing

    leases.end_holder("bob", 1)

    turnover = leases.tick(100, count_max=10)
    assert [(one.holder, one.ends_ms) for one in turnover.granted] == [("cid", 200)]
    assert leases.awaited_by("bob") == []


def test_the_release_of_anothers_right_changes_nothing() -> None:
    leases = new()
    leases.take("r", "ann", 0, span_ms=None)

    assert leases.release("r", "bob", 0) == ([], [])
    assert leases.release("s", "bob", 0) == ([], [])
    assert holder(leases, 0) == "ann"


def test_rights_and_candidates_are_bounded() -> None:
    leases = new(leases_max=1)
    leases.wait("r", "ann", 0, span_ms=None)
    leases.wait("r", "bob", 0, span_ms=None)

    with pytest.raises(Overloaded):
        leases.take("s", "ann", 0, span_ms=None)
    with pytest.raises(Overloaded):
        leases.wait("r", "cid", 0, span_ms=None)


def test_a_tick_ends_so_many_and_no_more() -> None:
    leases = new()
    for number in range(5):
        leases.take(f"r{number}", "ann", 0, span_ms=10)

    assert len(leases.tick(10, count_max=3).ended) == 3
    assert leases.next_end_ms() == 10
    assert len(leases.tick(10, count_max=3).ended) == 2
    assert leases.next_end_ms() is None


def test_renewals_leave_no_entries_behind() -> None:
    leases = new()
    for now_ms in range(10_000):
        leases.take("r", "ann", now_ms, span_ms=50)

    assert len(leases._heap) < 1_100


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["take", "release", "end"]),
        st.sampled_from(["r", "s"]),
        st.sampled_from(["ann", "bob", "cid"]),
        st.integers(0, 40),
    ),
    max_size=40,
)


@given(steps=STEPS)
def test_a_resource_has_the_holder_that_a_plain_table_has(
    steps: list[tuple[str, str, str, int]],
) -> None:
    leases = new()
    table: dict[str, tuple[str, int]] = {}
    now_ms = 0
    for action, resource, name, passed_ms in steps:
        now_ms += passed_ms
        leases.tick(now_ms, count_max=100)
        table = {key: value for key, value in table.items() if value[1] > now_ms}
        if action == "take":
            if table.get(resource, (name, 0))[0] == name:
                table[resource] = (name, now_ms + 50)
            leases.take(resource, name, now_ms, span_ms=50)
        elif action == "release":
            if table.get(resource, ("", 0))[0] == name:
                del table[resource]
            leases.release(resource, name, now_ms)
        else:
            table = {key: value for key, value in table.items() if value[0] != name}
            leases.end_holder(name, now_ms)
        expected = {key: value[0] for key, value in table.items()}
        found = {key: holder(leases, now_ms, key) for key in ("r", "s")}
        assert {key: value for key, value in found.items() if value} == expected
