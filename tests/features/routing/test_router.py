"""Routes of messages over exchanges, against a plain matcher, and by the rules one at a time."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from features.routing.model import (
    Binding,
    Destination,
    Exchange,
    ExchangeType,
    InvalidBinding,
    Message,
    format_arguments,
)
from features.routing.route_memo import RouteMemo
from features.routing.router import Router
from tests.features.routing.brute_force import queues_of

TYPES = (ExchangeType.DIRECT, ExchangeType.FANOUT, ExchangeType.TOPIC, ExchangeType.HEADERS)
NAMES = ("x", "y", "z")

words = st.sampled_from(["a", "b", "", "*", "#"])
keys = st.lists(words, max_size=5).map(".".join)
values = st.sampled_from([None, True, False, 0, 1, 1.0, 2, "a", b"a", "1", [1], {"n": 1}])
names = st.sampled_from(["h", "i", "x-h"])
tables = st.dictionaries(names, values, max_size=3)
kinds = st.sampled_from(
    [{}, *({"x-match": kind} for kind in ("all", "any", "all-with-x", "any-with-x"))]
)
destinations = st.builds(Destination, st.sampled_from(["q1", "q2", "q3"])) | st.builds(
    Destination, st.sampled_from(NAMES), st.just(value=True)
)
bindings = st.builds(
    lambda source, destination, key, kind, arguments: Binding(
        source, destination, key, format_arguments(kind | arguments)
    ),
    st.sampled_from(NAMES),
    destinations,
    keys,
    kinds,
    tables,
)
exchanges = st.tuples(
    *(
        st.builds(
            Exchange,
            st.just(name),
            st.sampled_from(TYPES),
            alternate=st.sampled_from([None, None, *NAMES, "", "missing"]),
        )
        for name in NAMES
    )
)
messages = st.builds(Message, st.lists(keys, min_size=1, max_size=2), tables)


def router_of(*some: Exchange, memo: RouteMemo | None = None) -> Router:
    router = Router(choose=lambda count: count - 1, memo=memo)
    for exchange in some:
        router.put(exchange)
    return router


def to_queue(source: str, queue: str, key: str = "", **arguments: object) -> Binding:
    return Binding(source, Destination(queue), key, format_arguments(arguments))  # type: ignore[arg-type]


def to_exchange(source: str, name: str, key: str = "") -> Binding:
    return Binding(source, Destination(name, is_exchange=True), key)


def routed(router: Router, name: str, key: str = "", **headers: object) -> list[str]:
    return list(router.route(name, Message([key], headers)).targets)  # type: ignore[arg-type]


@settings(max_examples=150)
@given(
    some=exchanges,
    bound=st.lists(bindings, max_size=12),
    unbound=st.lists(st.integers(0, 11), max_size=4),
    sent=st.lists(messages, min_size=1, max_size=3),
)
@example(
    some=tuple(Exchange(name, ExchangeType.TOPIC) for name in NAMES),
    bound=[to_queue("x", "q1", "#.#.a.#"), to_queue("x", "q2", "*.#.*")],
    unbound=[],
    sent=[Message(["a.b"]), Message([""]), Message(["b"])],
)
def test_routes_are_those_of_the_plain_matcher(
    some: tuple[Exchange, ...], bound: list[Binding], unbound: list[int], sent: list[Message]
) -> None:
    router = router_of(*some)
    for binding in bound:
        router.bind(binding)
    left = list(dict.fromkeys(bound))
    for index in unbound:
        if index < len(left):
            assert router.unbind(left.pop(index))
    by_name = {exchange.name: exchange for exchange in some}
    for message in sent:
        expected = queues_of(by_name, left, "x", message)
        first = router.route("x", message)
        assert set(first.targets) == expected
        assert router.route("x", message).targets is first.targets
    for binding in left:
        assert router.unbind(binding)
    assert not any(
        router.route("x", message).targets for message in sent if not alternates(some)
    )


def alternates(some: tuple[Exchange, ...]) -> bool:
    return any(exchange.alternate == "" for exchange in some)


def test_a_queue_gets_a_message_once() -> None:
    router = router_of(Exchange("x", ExchangeType.TOPIC), Exchange("y", ExchangeType.FANOUT))
    for key in ("#", "a.*", "a.b"):
        router.bind(to_queue("x", "q", key))
    router.bind(to_exchange("x", "y", "a.#"))
    router.bind(to_queue("y", "q"))

    assert routed(router, "x", "a.b") == ["q"]


def test_a_cycle_of_exchanges_ends() -> None:
    router = router_of(*(Exchange(name, ExchangeType.FANOUT) for name in NAMES))
    for source, name in (("x", "y"), ("y", "z"), ("z", "x"), ("x", "x")):
        router.bind(to_exchange(source, name))
    router.bind(to_queue("z", "q"))

    assert routed(router, "x") == ["q"]


def test_an_alternate_exchange_is_asked_where_no_binding_matched() -> None:
    router = router_of(
        Exchange("x", ExchangeType.DIRECT, alternate="y"),
        Exchange("y", ExchangeType.DIRECT, alternate="z"),
        Exchange("z", ExchangeType.FANOUT),
    )
    router.bind(to_queue("x", "q1", "a"))
    router.bind(to_queue("z", "q2"))

    assert routed(router, "x", "a") == ["q1"]
    assert routed(router, "x", "b") == ["q2"]


def test_a_binding_to_an_exchange_that_routes_nowhere_is_a_match() -> None:
    router = router_of(
        Exchange("x", ExchangeType.FANOUT, alternate="z"),
        Exchange("y", ExchangeType.FANOUT),
        Exchange("z", ExchangeType.FANOUT),
    )
    router.bind(to_exchange("x", "y"))
    router.bind(to_queue("z", "q"))

    assert routed(router, "x") == []


def test_the_default_exchange_routes_by_the_name_of_a_queue() -> None:
    assert routed(router_of(), "", "q") == ["q"]
    assert list(router_of().route("", Message(["q2", "q1"])).targets) == ["q1", "q2"]


def test_equal_target_sets_are_one_object() -> None:
    router = router_of(Exchange("x", ExchangeType.FANOUT), Exchange("y", ExchangeType.DIRECT))
    for binding in (
        to_queue("x", "b"),
        to_queue("x", "a"),
        to_queue("y", "a"),
        to_queue("y", "b"),
    ):
        router.bind(binding)

    held = router.route("x", Message(["k"])).targets
    assert router.route("y", Message([""])).targets is held
    router.bind(to_queue("x", "c"))
    assert router.route("y", Message([""])).targets is held


def test_routes_are_remembered_until_the_next_change() -> None:
    router = router_of(Exchange("x", ExchangeType.TOPIC))
    router.bind(to_queue("x", "q", "#"))
    routed(router, "x", "key.99")
    before = router.touched
    routed(router, "x", "key.99")
    assert router.touched == before

    router.unbind(to_queue("x", "q", "#"))
    assert routed(router, "x", "key.99") == []


def test_a_removed_exchange_takes_its_bindings_with_it() -> None:
    router = router_of(Exchange("x", ExchangeType.FANOUT), Exchange("y", ExchangeType.FANOUT))
    leading, following = to_exchange("x", "y"), to_queue("y", "q")
    for binding in (leading, following, to_exchange("y", "y")):
        router.bind(binding)

    assert set(router.remove("y")) == {leading, following, to_exchange("y", "y")}
    assert routed(router, "x") == []
    assert router.bindings_from("x") == []
    assert router.bindings_to(Destination("q")) == []


def test_a_removed_queue_takes_its_bindings_with_it() -> None:
    router = router_of(Exchange("x", ExchangeType.FANOUT), Exchange("y", ExchangeType.TOPIC))
    some = [to_queue("x", "q"), to_queue("y", "q", "#.a"), to_queue("y", "q", "#")]
    for binding in some:
        router.bind(binding)

    assert router.remove_queue("q") == some
    assert routed(router, "x") == routed(router, "y", "a") == []


def test_a_binding_is_known_by_its_key_and_its_arguments() -> None:
    router = router_of(Exchange("x", ExchangeType.HEADERS))

    assert router.bind(to_queue("x", "q", "", n=1))
    assert not router.bind(to_queue("x", "q", "", n=1))
    assert router.bind(to_queue("x", "q", "", n=True))
    assert router.unbind(to_queue("x", "q", "", n=1))
    assert routed(router, "x", n=1) == []
    assert routed(router, "x", n=True) == ["q"]


@pytest.mark.parametrize("kind", ["some", 1, None])
def test_a_wrong_x_match_is_refused(kind: object) -> None:
    router = router_of(Exchange("x", ExchangeType.HEADERS))
    binding = Binding("x", Destination("q"), "", format_arguments({"x-match": kind}))  # type: ignore[dict-item]

    with pytest.raises(InvalidBinding, match="x-match"):
        router.check(binding)
