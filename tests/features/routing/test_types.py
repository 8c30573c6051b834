"""Exchange types whose route depends on a hash, on chance, on time or on the past."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.routing.delayed import DELAY_MS_MAX, delay_ms_of
from features.routing.hashing import jump_hash
from features.routing.model import (
    Binding,
    Destination,
    Exchange,
    ExchangeType,
    InvalidBinding,
    InvalidExchange,
    Message,
    Value,
    format_arguments,
    parse_arguments,
)
from features.routing.recent_history import RecentHistory, history_length, is_remembered
from features.routing.route import Route
from features.routing.router import Router
from features.routing.types import check_exchange

DELAYED = Exchange("x", ExchangeType.DELAYED, {"x-delayed-type": "direct"})
DELAYED_TOO = Exchange("y", ExchangeType.DELAYED, {"x-delayed-type": "fanout"})


def router_of(*exchanges: Exchange, picks: list[int] | None = None) -> Router:
    chances = iter(picks or ())
    router = Router(choose=lambda count: next(chances) % count)
    for exchange in exchanges:
        router.put(exchange)
    return router


def bind(router: Router, queue: str, key: str = "", source: str = "x") -> Binding:
    binding = Binding(source, Destination(queue), key)
    assert router.bind(binding)
    return binding


def route(router: Router, key: str = "", **headers: Value) -> Route:
    return router.route("x", Message([key], headers))


def spread(router: Router, count: int = 2_000) -> Counter[str]:
    return Counter(next(iter(route(router, f"key{n}").targets)) for n in range(count))


def test_a_consistent_hash_spreads_by_weight() -> None:
    router = router_of(Exchange("x", ExchangeType.CONSISTENT_HASH))
    bind(router, "light", "1")
    bind(router, "heavy", "3")

    found = spread(router)

    assert sum(found.values()) == 2_000
    assert 1_400 < found["heavy"] < 1_600


def test_a_new_destination_of_a_consistent_hash_takes_keys_but_moves_no_others() -> None:
    router = router_of(Exchange("x", ExchangeType.CONSISTENT_HASH))
    for queue in ("a", "b", "c"):
        bind(router, queue, "10")
    before = {n: next(iter(route(router, f"key{n}").targets)) for n in range(500)}
    bind(router, "d", "10")
    after = {n: next(iter(route(router, f"key{n}").targets)) for n in range(500)}

    assert {after[n] for n in before if after[n] != before[n]} == {"d"}


def test_a_second_binding_of_a_destination_counts_when_the_first_is_gone() -> None:
    router = router_of(Exchange("x", ExchangeType.CONSISTENT_HASH))
    first = bind(router, "a", "1")
    bind(router, "a", "9000")
    bind(router, "b", "1")
    assert 900 < spread(router)["a"] < 1_100

    router.unbind(first)
    assert spread(router)["a"] > 1_950


def test_a_consistent_hash_of_a_header_ignores_the_key() -> None:
    router = router_of(Exchange("x", ExchangeType.CONSISTENT_HASH, {"hash-header": "user"}))
    for queue in "abcdef":
        bind(router, queue, "5")

    one_user = {route(router, f"key{n}", user="ann").targets for n in range(50)}
    users = {route(router, "key", user=f"user{n}").targets for n in range(50)}
    without = {route(router, f"key{n}").targets for n in range(50)}

    assert len(one_user) == len(without) == 1
    assert len(users) > 1


def test_a_consistent_hash_of_a_property_ignores_the_key() -> None:
    arguments: dict[str, Value] = {"hash-property": "message_id"}
    router = router_of(Exchange("x", ExchangeType.CONSISTENT_HASH, arguments))
    for queue in "abcdef":
        bind(router, queue, "5")

    found = {
        router.route("x", Message(["key"], {}, {"message_id": f"id{n}"})).targets
        for n in range(50)
    }
    assert len(found) > 1


@pytest.mark.parametrize("key", ["", "a", "0", "-1", "1.5", "10001", "9" * 5_000, "\u0663"])
def test_a_weight_that_is_none_is_refused(key: str) -> None:
    router = router_of(Exchange("x", ExchangeType.CONSISTENT_HASH))

    with pytest.raises(InvalidBinding, match="binding key must be"):
        router.check(Binding("x", Destination("q"), key))


@given(key=st.integers(0, 2**64 - 1), count=st.integers(1, 5_000))
def test_a_key_stays_or_moves_to_the_new_bucket(key: int, count: int) -> None:
    before, after = jump_hash(key, count), jump_hash(key, count + 1)

    assert 0 <= before < count
    assert after in {before, count}


def test_a_modulus_hash_takes_one_destination_for_a_key() -> None:
    router = router_of(Exchange("x", ExchangeType.MODULUS_HASH))
    for queue in "abc":
        bind(router, queue)

    assert route(router, "k").targets is route(router, "k").targets
    assert set(spread(router)) == {"a", "b", "c"}


@pytest.mark.parametrize("kind", [ExchangeType.RANDOM, ExchangeType.LOCAL_RANDOM])
def test_a_random_exchange_takes_one_binding_by_chance(kind: ExchangeType) -> None:
    router = router_of(Exchange("x", kind), picks=[2, 0, 1, 1, 0])
    first = bind(router, "a")
    bind(router, "b")
    bind(router, "c")

    assert [list(route(router).targets) for _ in range(3)] == [["c"], ["a"], ["b"]]
    router.unbind(first)
    assert [list(route(router).targets) for _ in range(2)] == [["b"], ["c"]]


def test_a_delayed_message_waits_and_is_routed_when_due() -> None:
    router = router_of(DELAYED)
    bind(router, "q", "k")
    message = Message(["k"], {"x-delay": 500})

    waiting = router.route("x", message)
    assert (list(waiting.targets), waiting.delayed, waiting.delay_ms) == ([], ("x",), 500)
    bind(router, "later", "k")
    due = router.route("x", message, is_due=True)
    assert (list(due.targets), due.delayed, due.delay_ms) == (["later", "q"], (), 0)


def test_a_due_message_is_not_delayed_again_behind_its_exchange() -> None:
    router = router_of(DELAYED, DELAYED_TOO)
    router.bind(Binding("x", Destination("y", is_exchange=True), "k"))
    bind(router, "q", source="y")

    due = router.route("x", Message(["k"], {"x-delay": 500}), is_due=True)

    assert (list(due.targets), due.delayed) == (["q"], ())


def test_a_message_may_wait_at_a_delayed_exchange_and_go_elsewhere_at_once() -> None:
    fanout = Exchange("x", ExchangeType.FANOUT)
    router = router_of(fanout, DELAYED_TOO)
    bind(router, "now")
    router.bind(Binding("x", Destination("y", is_exchange=True)))

    found = route(router, "k", **{"x-delay": 100})

    assert (list(found.targets), found.delayed) == (["now"], ("y",))


def test_a_delayed_exchange_does_not_ask_its_alternate_for_a_message_that_waits() -> None:
    delayed = Exchange("x", ExchangeType.DELAYED, {"x-delayed-type": "direct"}, alternate="y")
    router = router_of(delayed, Exchange("y", ExchangeType.FANOUT))
    bind(router, "q", source="y")

    assert list(route(router, "k", **{"x-delay": 100}).targets) == []
    assert list(route(router, "k").targets) == ["q"]


@pytest.mark.parametrize(
    ("value", "delay_ms"),
    [
        (1, 1),
        (DELAY_MS_MAX, DELAY_MS_MAX),
        (DELAY_MS_MAX + 1, 0),
        (0, 0),
        (-5, 0),
        ("20", 20),
        (b"20", 20),
        ("20.7", 20),
        (20.7, 20),
        ("soon", 0),
        ("9" * 400, 0),
        (1e300, 0),
        (float("nan"), 0),
        (True, 0),
        (None, 0),
        ([5], 0),
    ],
)
def test_the_delay_of_a_header(value: Value, delay_ms: int) -> None:
    assert delay_ms_of({"x-delay": value}) == delay_ms


def test_a_recent_history_is_bounded_by_number_and_size() -> None:
    history = RecentHistory[str](3, bytes_max=100)
    for number in range(5):
        history.put(f"m{number}", 10)
    assert history.messages() == ["m2", "m3", "m4"]

    history.put("large", 85)
    assert history.messages() == ["m4", "large"]
    history.put("too large", 101)
    assert (history.messages(), history.size_bytes) == ([], 0)


def test_a_route_names_the_recent_history_exchanges_on_its_way() -> None:
    router = router_of(Exchange("x", ExchangeType.RECENT_HISTORY))
    bind(router, "q")

    assert route(router).remembered == ("x",)
    assert not is_remembered({"x-recent-history-no-store": True})
    assert is_remembered({"x-recent-history-no-store": "true"})
    assert history_length({}) == 20


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("foo", {}),
        ("x-delayed-message", {}),
        ("x-delayed-message", {"x-delayed-type": "x-delayed-message"}),
        ("x-delayed-message", {"x-delayed-type": 1}),
        ("x-consistent-hash", {"hash-header": "a", "hash-property": "message_id"}),
        ("x-consistent-hash", {"hash-property": "app_id"}),
        ("x-consistent-hash", {"hash-header": 1}),
        ("x-recent-history", {"x-recent-history-length": 0}),
        ("x-recent-history", {"x-recent-history-length": True}),
        ("x-recent-history", {"x-recent-history-length": 1_001}),
        ("direct", {"alternate-exchange": 5}),
    ],
)
def test_a_wrong_exchange_is_refused(kind: str, arguments: dict[str, Value]) -> None:
    with pytest.raises(InvalidExchange):
        check_exchange(kind, arguments)


VALUES: st.SearchStrategy[Value] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(arguments=st.dictionaries(st.text(), VALUES, max_size=4))
def test_arguments_come_back_from_their_text(arguments: dict[str, Value]) -> None:
    text = format_arguments(arguments)
    found = parse_arguments(text)

    assert format_arguments(found) == text
    assert "$base64" in text or found == arguments
