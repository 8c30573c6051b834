"""Packet identifiers of a session that lasts: one in use is not given out a second time.

A restart goes back to the state that was kept last, so an identifier is free when a state is
kept in which its message is settled, not when its acknowledgement comes.
"""

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from adapters.mqtt.inflight.outbox import STATES_PER_ROUND
from tests.adapters.mqtt.disk_faults import RARELY, full_disk
from tests.adapters.mqtt.few_packet_ids import few_identifiers
from tests.adapters.mqtt.restartable_node import (
    Client,
    RestartableNode,
    numbered,
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind, Prop
from tests.support.waiting import turns

IDENTIFIERS = 40
BEYOND = 10  # messages, where there is one for each identifier


@pytest.fixture(autouse=True)
def _few_identifiers() -> Iterator[None]:
    with few_identifiers(IDENTIFIERS):
        yield


async def first_is_open(one: RestartableNode) -> tuple[Client, Client]:
    """Return (subscriber, publisher): all identifiers are used, all but the first settled."""
    subscriber = await one.client("s", kept=True)
    await subscriber.subscribe(("t", 1))
    publisher = await one.client("p")
    await publisher.publish("t", numbered(IDENTIFIERS))
    found = await subscriber.messages(IDENTIFIERS)
    assert [one.packet_id for one in found] == list(range(1, IDENTIFIERS + 1))
    for message in found[1:]:
        await subscriber.acknowledge(message)
    await publisher.publish("t", numbered(BEYOND, start=IDENTIFIERS))
    await one.delivered()
    await subscriber.silent()
    return subscriber, publisher


async def test_an_identifier_is_not_used_twice_after_a_crash(tmp_path: Path) -> None:
    """MQTT-2.2.1-4."""
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        subscriber, _ = await first_is_open(one)
        subscriber.send(wire.ack(Kind.PUBACK, 1))
        found = await subscriber.messages(BEYOND)
        assert [one.packet_id for one in found] == list(range(1, BEYOND + 1))

        await one.restart(crash=True)

        back = await one.client("s", kept=True)
        again = await back.messages(BEYOND)
        assert [(one.packet_id, one.payload) for one in again] == [
            (one.packet_id, one.payload) for one in found
        ]
        await back.silent()


async def test_identifiers_wait_for_a_state_that_the_disk_refuses(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        subscriber, _ = await first_is_open(one)
        with full_disk(one):
            subscriber.send(wire.ack(Kind.PUBACK, 1))
            await subscriber.silent()
            await turns(5)
            await subscriber.silent()

        one.adapter.node.sessions.checkpoint()

        assert payloads(await subscriber.take(BEYOND)) == numbered(BEYOND, start=IDENTIFIERS)


async def test_a_busy_session_has_its_state_kept_before_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        subscriber = await one.client("s", kept=True, found=[(Prop.RECEIVE_MAXIMUM, 1)])
        await subscriber.subscribe(("t", 1))
        publisher = await one.client("p")
        store = one.adapter.node.context.store
        states = Mock(wraps=store.put_state)
        monkeypatch.setattr(store, "put_state", states)
        rounds = 5
        await publisher.publish("t", numbered(rounds * IDENTIFIERS))

        found = await subscriber.take(rounds * IDENTIFIERS)

        assert payloads(found) == numbered(rounds * IDENTIFIERS)
        assert rounds - 1 <= states.call_count <= rounds * STATES_PER_ROUND


async def test_a_session_that_ends_with_its_connection_has_its_identifiers_at_once(
    tmp_path: Path,
) -> None:
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        subscriber = await one.client("s")
        await subscriber.subscribe(("t", 2))
        publisher = await one.client("p")
        count = 5 * IDENTIFIERS
        await publisher.publish("t", numbered(count), qos=2)

        assert payloads(await subscriber.take(count)) == numbered(count)
