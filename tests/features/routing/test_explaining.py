"""Explained routes: the router's own targets, and a true word about each binding."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.routing.explaining import STEPS_MAX, Explanation, explain
from features.routing.model import Binding, Destination, Exchange, ExchangeType, Message
from features.routing.router import Router
from tests.features.routing.brute_force import binding_matches
from tests.features.routing.test_router import (
    bindings,
    exchanges,
    messages,
    router_of,
    to_exchange,
    to_queue,
)


def words_of(found: Explanation) -> list[tuple[str, bool, str]]:
    """Return destination, decision and reason of each binding, over all steps."""
    return [
        (one.binding.destination.name, one.matches, one.reason)
        for step in found.steps
        for one in step.reasons
    ]


@settings(max_examples=50)
@given(some=exchanges, bound=st.lists(bindings, max_size=12), sent=messages)
def test_an_explanation_agrees_with_the_route(
    some: tuple[Exchange, ...], bound: list[Binding], sent: Message
) -> None:
    router = router_of(*some)
    for binding in bound:
        router.bind(binding)
    found = explain(router, "x", sent)
    assert found.route == router.route("x", sent)
    for step in found.steps:
        if step.exchange is None:
            assert step.reasons == []
            continue
        assert {one.binding for one in step.reasons} == set(router.bindings_from(step.name))
        for one in step.reasons:
            assert one.matches == binding_matches(step.exchange, one.binding, sent)


@pytest.mark.parametrize(
    ("kind", "key", "arguments", "words"),
    [
        (ExchangeType.DIRECT, "a.b", {}, "its key is the routing key"),
        (ExchangeType.DIRECT, "a", {}, "its key is not the routing key"),
        (ExchangeType.TOPIC, "a.*", {}, "its pattern matches the routing key"),
        (ExchangeType.TOPIC, "*", {}, "its pattern does not match the routing key"),
        (ExchangeType.FANOUT, "", {}, "the exchange sends every message to every binding"),
        (ExchangeType.HEADERS, "", {"n": 5}, "x-match=all: all headers are met"),
        (ExchangeType.HEADERS, "", {"n": 6}, "x-match=all: the header 'n' has another value"),
        (ExchangeType.HEADERS, "", {"m": 5}, "x-match=all: the header 'm' is missing"),
        (
            ExchangeType.HEADERS,
            "",
            {"x-match": "any", "m": 1, "n": 5},
            "x-match=any: the header 'n' is met",
        ),
        (ExchangeType.HEADERS, "", {"x-match": "any", "m": 1}, "x-match=any: no header is met"),
        (
            ExchangeType.HEADERS,
            "",
            {"x-match": "any"},
            "x-match=any without arguments matches no message",
        ),
        (ExchangeType.HEADERS, "", {}, "x-match=all without arguments matches every message"),
    ],
)
def test_each_type_has_its_own_reasons(
    kind: ExchangeType, key: str, arguments: dict[str, object], words: str
) -> None:
    router = router_of(Exchange("x", kind))
    router.bind(to_queue("x", "q", key, **arguments))
    found = explain(router, "x", Message(["a.b"], {"n": 5}))
    assert [reason for _, _, reason in words_of(found)] == [words]


def test_one_binding_of_a_hash_is_chosen() -> None:
    router = router_of(Exchange("x", ExchangeType.CONSISTENT_HASH, {"hash-header": "id"}))
    for queue in ("q1", "q2", "q3"):
        router.bind(to_queue("x", queue, "2"))
    found = explain(router, "x", Message([""], {"id": 7}))
    chosen = [(name, reason) for name, matches, reason in words_of(found) if matches]
    (target,) = found.route.targets
    assert chosen == [(target, "the hash of the header id chooses it, whose weight is 2")]
    assert len(words_of(found)) == 3


def test_what_chance_has_chosen_is_said_so() -> None:
    router = router_of(Exchange("x", ExchangeType.RANDOM))
    for queue in ("q1", "q2"):
        router.bind(to_queue("x", queue))
    found = explain(router, "x", Message([""]))
    (target,) = found.route.targets
    assert ("by chance" in words_of(found)[0][2], words_of(found)[0][0]) == (True, target)


def test_an_alternate_exchange_is_a_step_of_the_way() -> None:
    router = router_of(
        Exchange("x", ExchangeType.DIRECT, alternate="y"), Exchange("y", ExchangeType.FANOUT)
    )
    router.bind(to_queue("x", "q1", "a"))
    router.bind(to_queue("y", "q2"))
    first, second = explain(router, "x", Message(["b"])).steps
    assert first.outcome == "no binding matches: its alternate exchange gets the message"
    assert (second.name, second.source, second.is_alternate) == ("y", "x", True)
    assert second.outcome == "the message goes on to 1 destination"


@pytest.mark.parametrize(
    ("exchange", "words"),
    [
        ("x", "no binding matches, and it has no alternate exchange: the message ends here"),
        ("y", "it has no bindings, and it has no alternate exchange: the message ends here"),
        ("z", "there is no exchange of this name: the message ends here"),
        ("", "the default exchange leads to the queue whose name is the routing key"),
    ],
)
def test_an_end_of_the_way_is_said_plainly(exchange: str, words: str) -> None:
    router = router_of(Exchange("x", ExchangeType.DIRECT), Exchange("y", ExchangeType.DIRECT))
    router.bind(to_queue("x", "q", "a"))
    (step,) = explain(router, exchange, Message(["b"])).steps
    assert step.outcome == words


def test_a_delayed_message_waits_and_then_goes_on() -> None:
    delayed = Exchange("x", ExchangeType.DELAYED, {"x-delayed-type": "direct"})
    router = router_of(delayed)
    router.bind(to_queue("x", "q", "a"))
    found = explain(router, "x", Message(["a"], {"x-delay": 5_000}))
    assert (list(found.route.targets), found.route.delayed) == ([], ("x",))
    assert list(found.later.targets) == ["q"]
    assert found.steps[0].outcome == (
        "the message waits here for 5000 ms, then: the message goes on to 1 destination"
    )


def test_an_explanation_is_bounded_and_begins_with_what_leads_on() -> None:
    router = Router(choose=lambda _: 0)
    names = [f"e{number}" for number in range(STEPS_MAX + 5)]
    for name in names:
        router.put(Exchange(name, ExchangeType.DIRECT))
    for name, following in pairwise(names):
        router.bind(Binding(name, Destination("never"), "other"))
        router.bind(to_exchange(name, following, "k"))
    found = explain(router, "e0", Message(["k"]), bindings_max=3)
    assert (len(found.steps), found.left_out) == (STEPS_MAX, 5)
    assert [matches for _, matches, _ in words_of(found)] == [True, False, True]
    assert [step.left_out for step in found.steps[:3]] == [0, 1, 2]
