"""Elements that a route looks at, with 100,000 bindings."""

import pytest

from features.routing.model import (
    Binding,
    Destination,
    Exchange,
    ExchangeType,
    Message,
    Value,
    format_arguments,
)
from features.routing.route_memo import RouteMemo
from features.routing.router import Router

COUNT = 100_000


def router_of(kind: ExchangeType) -> Router:
    router = Router(choose=lambda _count: 0, memo=RouteMemo(0))
    router.put(Exchange("x", kind))
    return router


def touched(router: Router, message: Message) -> tuple[list[str], int]:
    before = router.touched
    found = router.route("x", message)
    return list(found.targets), router.touched - before


def test_a_direct_exchange_looks_at_one_key() -> None:
    router = router_of(ExchangeType.DIRECT)
    for number in range(COUNT):
        router.bind(Binding("x", Destination(f"q{number}"), f"k{number}"))

    assert touched(router, Message(["k77"])) == (["q77"], 2)


def test_a_topic_exchange_looks_at_the_nodes_that_the_words_reach() -> None:
    router = router_of(ExchangeType.TOPIC)
    for number in range(COUNT):
        key = f"region{number % 10}.site{number % 1_000}.device{number}"
        router.bind(Binding("x", Destination(f"q{number}"), key))
    router.bind(Binding("x", Destination("all"), "region7.#"))

    found, looked_at = touched(router, Message(["region7.site77.device77"]))

    assert found == ["all", "q77"]
    assert looked_at < 12


def test_many_wildcards_are_no_product_of_choices() -> None:
    router = router_of(ExchangeType.TOPIC)
    for length in range(1, 30):
        router.bind(Binding("x", Destination(f"q{length}"), ".".join(["#", "a"] * length)))
    key = ".".join(["a"] * 100)

    found, looked_at = touched(router, Message([key]))

    assert len(found) == 29
    assert looked_at < 100 * 70


@pytest.mark.parametrize("kind", ["all", "any"])
def test_a_headers_exchange_looks_at_bindings_that_ask_for_what_is_there(kind: str) -> None:
    router = router_of(ExchangeType.HEADERS)
    for number in range(COUNT):
        arguments: dict[str, Value] = {"x-match": kind, "id": number}
        if kind == "all":
            arguments["app"] = "shop"  # the same in all of them
        text = format_arguments(arguments)
        router.bind(Binding("x", Destination(f"q{number}"), "", text))

    found, looked_at = touched(router, Message([""], {"app": "shop", "id": 77}))

    assert found == ["q77"]
    assert looked_at < 12


def test_hashes_and_chance_look_at_one_binding() -> None:
    for kind in (
        ExchangeType.CONSISTENT_HASH,
        ExchangeType.MODULUS_HASH,
        ExchangeType.RANDOM,
    ):
        router = router_of(kind)
        for number in range(COUNT // 10):
            router.bind(Binding("x", Destination(f"q{number}"), "1"))

        found, looked_at = touched(router, Message(["k"]))

        assert (len(found), looked_at) == (1, 2)


def test_a_removed_exchange_of_many_bindings_leaves_nothing() -> None:
    router = router_of(ExchangeType.CONSISTENT_HASH)
    for number in range(COUNT):
        router.bind(Binding("x", Destination(f"q{number}"), "1"))

    assert len(router.remove("x")) == COUNT
    assert router.bindings_to(Destination("q5")) == []
