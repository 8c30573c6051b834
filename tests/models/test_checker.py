"""The checker finds the shortest way to a bad state, and states that are stuck."""

from collections.abc import Iterator

import pytest

from tests.models.checker import Model, TooManyStates, check


def count(limit: int) -> Model[int]:
    def steps(state: int) -> Iterator[tuple[str, int]]:
        if state < limit:
            yield "one", state + 1
            yield "two", min(state + 2, limit)

    return Model(0, steps, lambda state: "seven" if state == 7 else "", lambda n: n == limit)


def test_every_state_of_a_good_model_is_visited() -> None:
    found = check(count(6), states_max=10)
    assert (found.states, found.problem) == (7, "")
    assert str(found) == "7 states, none bad"


def test_the_way_to_a_bad_state_is_the_shortest() -> None:
    found = check(count(9), states_max=10)
    assert found.problem == "seven"
    assert sorted(found.steps) == ["one", "two", "two", "two"]
    assert "seven, after 4 steps" in str(found)
    assert "  4. " in str(found)


def test_a_state_without_a_way_to_the_goal_is_stuck() -> None:
    def steps(state: str) -> Iterator[tuple[str, str]]:
        yield from {
            "start": [("left", "circle"), ("right", "end")],
            "circle": [("round", "circle")],
        }.get(state, [])

    model = Model("start", steps, lambda _: "", lambda state: state == "end")
    found = check(model, states_max=10)
    assert found.problem.startswith("stuck")
    assert found.steps == ("left",)


def test_a_model_without_a_bound_is_refused() -> None:
    model = Model(0, lambda state: [("more", state + 1)], lambda _: "", lambda _: True)
    with pytest.raises(TooManyStates, match="more than 50"):
        check(model, states_max=50)
