"""Exchanges and bindings: made, found, equal, bounded, and there after a restart."""

import asyncio

import pytest

from features.routing.model import (
    Binding,
    Destination,
    InvalidBinding,
    InvalidExchange,
    Message,
    Value,
    format_arguments,
)
from gateway.config.exchanges import ExchangeConfig
from gateway.errors import InvalidRequest, Overloaded, PolicyViolation, TopicNotFound
from gateway.exchanges.manager import Exchanges
from gateway.exchanges.model import ExchangeName
from gateway.exchanges.standard import (
    BindingNotFound,
    ExchangeExists,
    ExchangeInUse,
    ExchangeNotFound,
)
from gateway.model import TopicName
from tests.gateway.kernel_in_memory import House

LOGS = ExchangeName("default", "logs")
CONFIG = ExchangeConfig()


async def open_exchanges(house: House, config: ExchangeConfig = CONFIG) -> Exchanges:
    return await Exchanges.open(house.metadata, house.topics, house.clock, config)


def to_topic(source: str, topic: str, key: str = "", **arguments: Value) -> Binding:
    return Binding(source, Destination(topic), key, format_arguments(arguments))


def routed(exchanges: Exchanges, name: str, key: str = "", **headers: Value) -> list[str]:
    route = exchanges.route(ExchangeName("default", name), Message([key], headers))
    return list(route.targets)


async def test_every_namespace_has_the_standard_exchanges(house: House) -> None:
    exchanges = await open_exchanges(house)

    assert [one.name for one in exchanges.exchanges("a/b")] == [
        "amq.direct", "amq.fanout", "amq.headers", "amq.match", "amq.topic",
    ]  # fmt: skip
    assert routed(exchanges, "", "orders") == ["orders"]
    await house.topic("orders")
    assert await exchanges.bind("default", to_topic("amq.topic", "orders", "a.#"))
    assert routed(exchanges, "amq.topic", "a.b") == ["orders"]
    assert (
        exchanges.route(ExchangeName("other", "amq.topic"), Message(["a.b"])).targets.names
        == ()
    )


async def test_exchanges_and_bindings_are_there_after_a_restart(house: House) -> None:
    exchanges = await open_exchanges(house)
    await house.topic("errors")
    arguments = {"alternate-exchange": "amq.fanout"}
    assert await exchanges.declare(LOGS, "headers", arguments)
    await exchanges.declare(ExchangeName("default", "second"), "fanout", auto_delete=True)
    asked: dict[str, Value] = {"x-match": "any", "n": 1, "raw": b"\xff"}
    binding = to_topic("logs", "errors", "", **asked)
    await exchanges.bind("default", binding)
    await exchanges.bind("default", Binding("logs", Destination("second", is_exchange=True)))
    before = exchanges.exchanges("default"), exchanges.bindings("default")

    await house.restart()
    exchanges = await open_exchanges(house)

    assert (exchanges.exchanges("default"), exchanges.bindings("default")) == before
    assert exchanges.binding_count == 2
    assert routed(exchanges, "logs", raw=b"\xff") == ["errors"]
    await exchanges.unbind("default", binding)
    await house.restart()
    assert (await open_exchanges(house)).binding_count == 1


async def test_an_exchange_that_is_not_durable_ends_with_the_process(house: House) -> None:
    exchanges = await open_exchanges(house)
    await house.topic("t")
    gone = ExchangeName("default", "gone")
    await exchanges.declare(gone, "fanout", is_durable=False)
    with pytest.raises(ExchangeExists, match="durable"):
        await exchanges.declare(gone, "fanout")
    await exchanges.declare(LOGS, "fanout")
    to_gone = Binding("logs", Destination("gone", is_exchange=True))
    for binding in (to_topic("gone", "t"), to_gone, to_topic("logs", "t")):
        await exchanges.bind("default", binding)
    assert routed(exchanges, "gone") == ["t"]
    await exchanges.unbind("default", to_gone)
    await exchanges.bind("default", to_gone)

    exchanges = await open_exchanges(house)

    assert exchanges.find(gone) is None
    assert exchanges.bindings("default") == [to_topic("logs", "t")]
    await exchanges.declare(gone, "direct", is_durable=False)
    await exchanges.delete(gone)


async def test_an_equal_declaration_is_no_error_and_another_one_is(house: House) -> None:
    exchanges = await open_exchanges(house)
    assert await exchanges.declare(LOGS, "topic", {"alternate-exchange": "a", "x-other": 1})

    assert not await exchanges.declare(LOGS, "topic", {"alternate-exchange": "a"})
    with pytest.raises(
        ExchangeExists, match=r"'type'.*received 'direct' but current is 'topic'"
    ):
        await exchanges.declare(LOGS, "direct", {"alternate-exchange": "a"})
    with pytest.raises(ExchangeExists, match="alternate-exchange"):
        await exchanges.declare(LOGS, "topic")
    with pytest.raises(ExchangeExists, match="auto_delete"):
        await exchanges.declare(LOGS, "topic", {"alternate-exchange": "a"}, auto_delete=True)


@pytest.mark.parametrize("name", ["", "amq.mine"])
async def test_reserved_names_are_refused(house: House, name: str) -> None:
    exchanges = await open_exchanges(house)

    with pytest.raises(PolicyViolation):
        await exchanges.declare(ExchangeName("default", name), "direct")
    with pytest.raises(PolicyViolation):
        await exchanges.delete(ExchangeName("default", name or "amq.direct"))


@pytest.mark.parametrize("name", ["x" * 256, "a\nb", "a\0b", "\ud800"])
async def test_names_are_text_of_255_bytes(house: House, name: str) -> None:
    exchanges = await open_exchanges(house)
    await exchanges.declare(ExchangeName("default", "\u00e4" * 127), "direct")

    with pytest.raises(InvalidRequest):
        await exchanges.declare(ExchangeName("default", name), "direct")


async def test_what_is_not_valid_is_refused(house: House) -> None:
    exchanges = await open_exchanges(house)
    await house.topic("t")
    await exchanges.declare(LOGS, "x-consistent-hash")

    with pytest.raises(InvalidExchange, match="unknown exchange type"):
        await exchanges.declare(ExchangeName("default", "x"), "other")
    with pytest.raises(InvalidExchange, match="x-delayed-type"):
        await exchanges.declare(ExchangeName("default", "x"), "x-delayed-message")
    with pytest.raises(InvalidBinding):
        await exchanges.bind("default", to_topic("logs", "t", "heavy"))
    with pytest.raises(InvalidRequest, match="at most 16384"):
        await exchanges.declare(ExchangeName("default", "x"), "direct", {"a": "b" * 20_000})


async def test_both_ends_of_a_binding_must_be_there(house: House) -> None:
    exchanges = await open_exchanges(house)
    await house.topic("t")
    await house.topics.create(TopicName("default", "__queues"), partitions=1, internal=True)

    with pytest.raises(ExchangeNotFound):
        await exchanges.bind("default", to_topic("logs", "t"))
    with pytest.raises(TopicNotFound):
        await exchanges.bind("default", to_topic("amq.direct", "missing"))
    with pytest.raises(ExchangeNotFound):
        await exchanges.bind(
            "default", Binding("amq.direct", Destination("logs", is_exchange=True))
        )
    with pytest.raises(PolicyViolation):
        await exchanges.bind("default", to_topic("", "t"))
    with pytest.raises(PolicyViolation):
        await exchanges.bind("default", to_topic("amq.direct", "__queues"))
    with pytest.raises(BindingNotFound):
        await exchanges.unbind("default", to_topic("amq.direct", "t"))
    with pytest.raises(ExchangeNotFound):
        routed(exchanges, "logs")
    assert exchanges.binding_count == 0


async def test_bindings_go_with_their_topic_and_their_exchange(house: House) -> None:
    exchanges = await open_exchanges(house)
    await house.topic("t")
    await house.topic("u")
    await exchanges.declare(LOGS, "fanout")
    for binding in (
        to_topic("logs", "t"),
        to_topic("amq.direct", "t", "k"),
        to_topic("amq.direct", "u", "k"),
        Binding("amq.direct", Destination("logs", is_exchange=True), "k"),
    ):
        await exchanges.bind("default", binding)

    await house.topics.delete(TopicName("default", "t"))
    assert exchanges.binding_count == 2
    assert routed(exchanges, "amq.direct", "k") == ["u"]

    await exchanges.bind("default", to_topic("logs", "u"))
    with pytest.raises(ExchangeInUse):
        await exchanges.delete(LOGS, if_unused=True)
    await exchanges.delete(LOGS)
    assert exchanges.bindings("default") == [to_topic("amq.direct", "u", "k")]
    await house.restart()
    exchanges = await open_exchanges(house)
    assert exchanges.bindings("default") == [to_topic("amq.direct", "u", "k")]


async def test_an_auto_delete_exchange_goes_with_its_last_binding(house: House) -> None:
    exchanges = await open_exchanges(house)
    for topic in ("t", "u"):
        await house.topic(topic)
    await exchanges.declare(LOGS, "fanout", auto_delete=True)
    await exchanges.bind("default", to_topic("logs", "t"))
    await exchanges.bind("default", to_topic("logs", "u"))

    await exchanges.unbind("default", to_topic("logs", "t"))
    assert exchanges.find(LOGS) is not None
    await exchanges.unbind("default", to_topic("logs", "u"))
    assert exchanges.find(LOGS) is None


async def test_an_auto_delete_exchange_goes_with_the_topic_of_its_last_binding(
    house: House,
) -> None:
    exchanges = await open_exchanges(house)
    await house.topic("t")
    await exchanges.declare(LOGS, "fanout", auto_delete=True)
    await exchanges.bind("default", to_topic("logs", "t"))

    await house.topics.delete(TopicName("default", "t"))
    await exchanges.close()  # after the changes that are running

    assert exchanges.find(LOGS) is None


async def test_an_internal_exchange_takes_messages_from_others_only(house: House) -> None:
    exchanges = await open_exchanges(house)
    await house.topic("t")
    await exchanges.declare(LOGS, "fanout", is_internal=True)
    await exchanges.bind("default", to_topic("logs", "t"))
    await exchanges.bind(
        "default", Binding("amq.fanout", Destination("logs", is_exchange=True))
    )

    with pytest.raises(PolicyViolation, match="internal"):
        routed(exchanges, "logs")
    assert routed(exchanges, "amq.fanout") == ["t"]


async def test_exchanges_and_bindings_are_bounded(house: House) -> None:
    exchanges = await open_exchanges(house, ExchangeConfig(exchanges_max=1, bindings_max=1))
    await house.topic("t")
    await exchanges.declare(LOGS, "fanout")
    await exchanges.bind("default", to_topic("logs", "t"))

    with pytest.raises(Overloaded, match=r"exchange\.exchanges_max"):
        await exchanges.declare(ExchangeName("default", "x"), "fanout")
    with pytest.raises(Overloaded, match=r"exchange\.bindings_max"):
        await exchanges.bind("default", to_topic("logs", "t", "k"))
    assert not await exchanges.bind("default", to_topic("logs", "t"))


async def test_changes_at_the_same_time_come_one_after_the_other(house: House) -> None:
    exchanges = await open_exchanges(house)
    await house.topic("t")

    made = await asyncio.gather(*(exchanges.declare(LOGS, "fanout") for _ in range(5)))
    bound = await asyncio.gather(
        *(exchanges.bind("default", to_topic("logs", "t")) for _ in range(5))
    )

    assert sorted(made) == sorted(bound) == [False] * 4 + [True]
    assert exchanges.binding_count == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"$base64": "a"},
        {"$base64": "YQ=="},
        {"t": {"$base64": "a"}},
        {"t": {"$base64": "YQ=="}},
    ],
)
async def test_a_table_that_reads_as_bytes_is_refused_before_it_is_stored(
    house: House, arguments: dict[str, Value]
) -> None:
    exchanges = await open_exchanges(house)

    with pytest.raises(InvalidRequest):
        await exchanges.declare(LOGS, "fanout", arguments)

    assert (await open_exchanges(house)).find(LOGS) is None


async def test_a_binding_whose_arguments_cannot_be_parsed_is_refused(house: House) -> None:
    exchanges = await open_exchanges(house)
    await house.topic("orders")
    text = format_arguments({"$base64": "a"})

    with pytest.raises(InvalidRequest):
        await exchanges.bind("default", Binding("amq.topic", Destination("orders"), "k", text))


async def test_a_policy_reaches_a_namespace_without_exchanges_of_its_own(house: House) -> None:
    exchanges = await open_exchanges(house)
    standard = ExchangeName("other", "amq.fanout")
    alternates = {"other": "first"}

    def alternate_of(name: ExchangeName) -> str | None:
        return alternates.get(name.namespace)

    def found() -> str | None:
        exchange = exchanges.find(standard)
        assert exchange is not None
        return exchange.alternate

    assert found() is None
    exchanges.set_policy(alternate_of)
    assert found() == "first"
    alternates["other"] = "second"
    exchanges.renew_alternates("other")
    assert found() == "second"
    last = exchanges.find(ExchangeName("last", "amq.fanout"))
    assert last is not None
    assert last.alternate is None
