"""Policies that hold for a name, and what they give together, against plain models."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policies.model import LIMITS, Policy, PolicyTarget, choose, lower_of, merge

KEYS = ("max-length", "message-ttl", "expires", "overflow", "dead-letter-exchange")


def policy(**changes: Any) -> Policy:
    values = {
        "namespace": "default",
        "name": "p",
        "pattern": "",
        "apply_to": "all",
        "definition": {"max-length": 1},
        "priority": 0,
    }
    return Policy(**(values | changes))  # type: ignore[arg-type]  # each by its own type


definitions = st.dictionaries(st.sampled_from(KEYS), st.integers(0, 9), min_size=1)


@given(policies=st.lists(st.tuples(st.sampled_from(["^a", "b$", ""]), st.integers(-2, 2))))
def test_the_highest_priority_that_matches_holds(policies: list[tuple[str, int]]) -> None:
    made = [
        policy(name=str(at), pattern=pattern, priority=priority)
        for at, (pattern, priority) in enumerate(policies)
    ]
    found = choose(made, PolicyTarget.CLASSIC_QUEUE, "ab")
    assert found == max(made, key=lambda one: one.priority, default=None)
    outside = [one for one in made if one.pattern == ""]
    assert choose(made, PolicyTarget.CLASSIC_QUEUE, "c") == max(
        outside, key=lambda one: one.priority, default=None
    )


@pytest.mark.parametrize(
    ("apply_to", "targets"),
    [
        ("all", set(PolicyTarget)),
        (
            "queues",
            {PolicyTarget.CLASSIC_QUEUE, PolicyTarget.QUORUM_QUEUE, PolicyTarget.STREAM},
        ),
        ("classic_queues", {PolicyTarget.CLASSIC_QUEUE}),
        ("quorum_queues", {PolicyTarget.QUORUM_QUEUE}),
        ("streams", {PolicyTarget.STREAM}),
        ("exchanges", {PolicyTarget.EXCHANGE}),
    ],
)
def test_a_policy_is_for_what_it_says(apply_to: str, targets: set[PolicyTarget]) -> None:
    one = policy(apply_to=apply_to)
    assert {target for target in PolicyTarget if one.is_for(target, "q")} == targets


@given(user=definitions, operator=definitions)
def test_of_a_limit_the_lower_number_holds(
    user: dict[str, int], operator: dict[str, int]
) -> None:
    merged = merge(policy(definition=user), policy(definition=operator))
    assert merged.keys() == user.keys() | operator.keys()
    for key, value in merged.items():
        both = [one[key] for one in (user, operator) if key in one]
        assert value == (min(both) if key in LIMITS else both[-1])


def test_no_limit_is_above_every_limit_of_deliveries() -> None:
    assert lower_of("delivery-limit", -1, 20) == 20
    assert lower_of("delivery-limit", 20, -1) == 20


def test_without_policies_there_is_no_definition() -> None:
    assert merge(None, None) == {}
