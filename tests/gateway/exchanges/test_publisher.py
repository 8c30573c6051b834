"""Messages published through exchanges: one append to all topics, or none."""

import pytest

from features.routing.model import Binding, Destination, Message, Value
from gateway.coalescer import Coalescer
from gateway.config.exchanges import ExchangeConfig
from gateway.errors import MessageTooLarge, PolicyViolation
from gateway.exchanges.manager import Exchanges
from gateway.exchanges.model import ExchangeName
from gateway.exchanges.publisher import Publication, Publisher
from gateway.model import TopicName
from gateway.transfer.transfers import Transfers
from tests.gateway.kernel_in_memory import House, outcome

FANOUT = ExchangeName("default", "amq.fanout")
RECENT = ExchangeName("default", "recent")


async def open_publisher(house: House, **bounds: int) -> Publisher:
    config = ExchangeConfig(**bounds)
    exchanges = await Exchanges.open(house.metadata, house.topics, house.clock, config)
    transfers = Transfers(house.broker, house.topics, house.clock)
    return Publisher(
        exchanges, house.topics, house.broker, Coalescer(house.broker), transfers, house.clock
    )


async def bind(publisher: Publisher, source: str, *topics: str, key: str = "") -> None:
    for topic in topics:
        await publisher.exchanges.bind("default", Binding(source, Destination(topic), key))


async def publish(
    publisher: Publisher,
    exchange: ExchangeName,
    *values: bytes,
    key: str = "",
    headers: dict[str, Value] | None = None,
) -> list[str]:
    publication = Publication(Message([key], headers or {}), values, [("h", b"1")])
    topics: list[str] = []

    def start(on_done: object) -> None:
        found = publisher.publish(exchange, publication, on_done)  # type: ignore[arg-type]
        topics.extend(topic.name.name for topic in found)

    assert await outcome(start) is None
    return topics


def values_of(house: House, topic: str) -> list[bytes | None]:
    found = house.topics.get(TopicName("default", topic))
    partitions = range(len(found.partition_ids))
    return [
        value
        for number in partitions
        for value in house.values(house.broker.partition(found, number))
    ]


async def test_a_message_is_in_every_topic_in_one_append(house: House) -> None:
    publisher = await open_publisher(house)
    for name in ("a", "b", "c"):
        await house.topic(name)
    await bind(publisher, "amq.fanout", "a", "b")
    appends = publisher._coalescer.rounds_appended

    assert await publish(publisher, FANOUT, b"1", b"2", key="k") == ["a", "b"]

    assert publisher._coalescer.rounds_appended == appends + 1
    assert values_of(house, "a") == values_of(house, "b") == [b"1", b"2"]
    assert values_of(house, "c") == []
    partition = house.broker.partition(house.topics.get(TopicName("default", "a")), 0)
    record = house.batches(partition)[0][0]
    assert (record.key, list(record.headers)) == (b"k", [("h", b"1")])


async def test_a_message_for_many_topics_is_stored_once(house: House) -> None:
    publisher = await open_publisher(house)
    names = [f"q{number:03}" for number in range(100)]
    for name in names:
        await house.topic(name)
    await house.topic("parted", 8)
    await bind(publisher, "amq.fanout", *names, "parted")

    assert await publish(publisher, FANOUT, b"1", key="k") == sorted([*names, "parted"])
    await publish(publisher, FANOUT, b"2", key="k")

    assert [len(one.targets) for one in house.storage.scan(0)] == [101, 101]
    assert all(values_of(house, name) == [b"1", b"2"] for name in [*names, "parted"])


async def test_a_changed_topic_changes_what_a_route_means(house: House) -> None:
    publisher = await open_publisher(house)
    for name in ("a", "b"):
        await house.topic(name)
    await bind(publisher, "amq.fanout", "a", "b")
    await publish(publisher, FANOUT, b"1")
    await house.topics.delete(TopicName("default", "a"))
    await house.topic("a")
    await bind(publisher, "amq.fanout", "a")

    assert await publish(publisher, FANOUT, b"2") == ["a", "b"]

    assert (values_of(house, "a"), values_of(house, "b")) == ([b"2"], [b"1", b"2"])


async def test_a_refused_topic_refuses_all(house: House) -> None:
    publisher = await open_publisher(house)
    await house.topic("a")
    await house.topic("b", max_message_bytes="1000")
    await bind(publisher, "amq.fanout", "a", "b")

    with pytest.raises(MessageTooLarge):
        await publish(publisher, FANOUT, b"x" * 2_000)

    assert values_of(house, "a") == []


async def test_the_default_exchange_reaches_a_topic_by_its_name(house: House) -> None:
    publisher = await open_publisher(house)
    await house.topic("a")
    default = ExchangeName("default", "")

    assert await publish(publisher, default, b"1", key="a") == ["a"]
    assert await publish(publisher, default, b"2", key="missing") == []
    assert values_of(house, "a") == [b"1"]


async def test_messages_of_a_key_share_a_partition(house: House) -> None:
    publisher = await open_publisher(house)
    await house.topic("a", 5)
    await bind(publisher, "amq.topic", "a", key="#")
    for number in range(20):
        await publish(publisher, ExchangeName("default", "amq.topic"), b"%d" % number, key="k")

    topic = house.topics.get(TopicName("default", "a"))
    counts = [len(house.values(house.broker.partition(topic, number))) for number in range(5)]
    assert sorted(counts) == [0, 0, 0, 0, 20]


async def test_the_number_of_topics_of_a_message_is_bounded(house: House) -> None:
    publisher = await open_publisher(house, targets_max=1)
    for name in ("a", "b"):
        await house.topic(name)
    await bind(publisher, "amq.fanout", "a")
    assert await publish(publisher, FANOUT, b"1") == ["a"]
    await bind(publisher, "amq.fanout", "b")

    with pytest.raises(PolicyViolation, match=r"exchange\.targets_max is 1"):
        await publish(publisher, FANOUT, b"2")


async def test_a_new_binding_gets_the_recent_history(house: House) -> None:
    publisher = await open_publisher(house)
    for name in ("a", "b", "c"):
        await house.topic(name)
    await publisher.exchanges.declare(
        RECENT, "x-recent-history", {"x-recent-history-length": 2}
    )
    await bind(publisher, "recent", "a")
    for value in (b"1", b"2", b"3"):
        await publish(publisher, RECENT, value)
    hidden: dict[str, Value] = {"x-recent-history-no-store": True}
    await publish(publisher, RECENT, b"4", headers=hidden)

    await bind(publisher, "recent", "b")
    await bind(publisher, "amq.fanout", "c")
    await publisher.exchanges.bind(
        "default", Binding("recent", Destination("amq.fanout", is_exchange=True))
    )
    await publish(publisher, FANOUT, b"end")

    assert values_of(house, "a") == [b"1", b"2", b"3", b"4"]
    assert values_of(house, "b") == [b"2", b"3"]
    assert values_of(house, "c") == [b"2", b"3", b"end"]


async def test_a_deleted_exchange_has_no_history(house: House) -> None:
    publisher = await open_publisher(house)
    await house.topic("a")
    await publisher.exchanges.declare(RECENT, "x-recent-history")
    await publish(publisher, RECENT, b"1")
    assert publisher._histories.size_bytes > 0
    await publisher.exchanges.delete(RECENT)
    assert publisher._histories.size_bytes == 0

    await publisher.exchanges.declare(RECENT, "x-recent-history")
    await bind(publisher, "recent", "a")
    await publish(publisher, RECENT, b"2")
    assert values_of(house, "a") == [b"2"]


async def test_histories_of_all_exchanges_are_bounded(house: House) -> None:
    publisher = await open_publisher(house, history_bytes_max=4_000)
    for name in ("one", "two"):
        exchange = ExchangeName("default", name)
        await publisher.exchanges.declare(exchange, "x-recent-history")
        await publish(publisher, exchange, b"x" * 1_000)
        await publish(publisher, exchange, b"y" * 1_000)

    assert publisher._histories.of(ExchangeName("default", "one")) == []
    assert len(publisher._histories.of(ExchangeName("default", "two"))) == 2
    assert publisher._histories.size_bytes <= 4_000
