"""Foreign brokers: registered, renewed, expired, bounded."""

import json

import pytest

from adapters.rocketmq.config import NameServerConfig
from adapters.rocketmq.nameserver.registry import (
    BrokerRegistry,
    RegisteredBroker,
    decode_topics,
)
from adapters.rocketmq.nameserver.routes import BrokerEntry, QueueEntry
from adapters.rocketmq.remoting.errors import Refused
from gateway.clock import ManualClock
from gateway.errors import Overloaded

QUEUES = QueueEntry("a", 4, 8, 6)


def broker(name: str = "a", broker_id: int = 0, holder: str = "connection") -> RegisteredBroker:
    topics = {"t": QUEUES} if broker_id == 0 else {}
    return RegisteredBroker(name, "C", broker_id, f"h:{broker_id}", holder, topics=topics)


def body(table: object) -> bytes:
    wrapper = {"topicConfigTable": table, "dataVersion": None}
    return json.dumps({"topicConfigSerializeWrapper": wrapper, "filterServerList": []}).encode()


async def test_a_broker_expires_after_its_last_registration() -> None:
    clock = ManualClock()
    registry = BrokerRegistry(NameServerConfig(broker_expiry_s=120), clock)
    registry.register(broker())
    clock.advance(100_000)
    registry.register(broker())
    clock.advance(119_999)
    registry._deadlines.run_due()
    assert registry.queues_of("t") == [QUEUES]
    clock.advance(1)
    registry._deadlines.run_due()
    assert (registry.queues_of("t"), len(registry)) == ([], 0)
    registry.close()


async def test_nodes_of_a_broker_are_one_entry_of_a_route() -> None:
    registry = BrokerRegistry(NameServerConfig(), ManualClock())
    registry.register(broker())
    registry.register(broker(broker_id=1))
    registry.register(broker("other"))

    assert registry.entries({"a"}) == [BrokerEntry("a", "C", {0: "h:0", 1: "h:1"})]
    assert len(registry.entries()) == 2
    assert registry.master_address("a") == "h:0"
    assert set(registry.topics()) == {("C", "t")}

    registry.unregister("a", 0)
    registry.unregister("unknown", 0)
    assert registry.master_address("a") is None
    registry.close()


async def test_the_brokers_of_an_ended_connection_are_forgotten() -> None:
    registry = BrokerRegistry(NameServerConfig(), ManualClock())
    registry.register(broker(holder="old"))
    registry.register(broker("b", holder="old"))
    registry.register(broker(holder="new"))  # the broker came back by another connection

    registry.end_holder("old")

    assert [one.name for one in registry.entries()] == ["a"]
    registry.close()


async def test_the_number_of_brokers_is_bounded() -> None:
    registry = BrokerRegistry(NameServerConfig(brokers_max=1), ManualClock())
    registry.register(broker())
    registry.register(broker())
    with pytest.raises(Overloaded):
        registry.register(broker("b"))
    registry.close()


def test_topics_of_a_registration_are_read() -> None:
    config = {"topicName": "t", "readQueueNums": 4, "writeQueueNums": 8, "perm": 6}
    assert decode_topics(body({"t": config}), "a", topics_max=1) == {"t": QUEUES}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        body([]),
        body({"t": []}),
        body({"t": {"perm": "6"}}),
        body({"t": {"perm": -1}}),
        body({"t": {"perm": 1 << 31}}),
    ],
)
def test_a_registration_that_cannot_be_read_is_refused(data: bytes) -> None:
    with pytest.raises(Refused):
        decode_topics(data, "a", topics_max=10)


def test_the_topics_of_a_broker_are_bounded() -> None:
    with pytest.raises(Overloaded):
        decode_topics(body({"t": {}, "u": {}}), "a", topics_max=1)
