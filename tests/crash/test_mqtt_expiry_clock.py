"""No message expires earlier or later when the wall clock is set, wherever it waits."""

from pathlib import Path
from typing import Any

import pytest

from tests.adapters.mqtt.publishing.test_delayed import due
from tests.adapters.mqtt.restartable_node import (
    Client,
    RestartableNode,
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind, Prop, Received

HOUR_MS = 3_600_000
LIVES_S = 600
EXPIRY = ((Prop.MESSAGE_EXPIRY, LIVES_S),)
ONE_AT_A_TIME = ((Prop.RECEIVE_MAXIMUM, 1),)
STEPS = pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS, 365 * 24 * HOUR_MS])
PASSED_S = 100


def left(found: Received) -> object:
    return found.value(Prop.MESSAGE_EXPIRY)


def step(one: RestartableNode, step_ms: int) -> None:
    """Step, and let some time pass, in which the message does not expire."""
    one.clock.step_unix(step_ms)
    one.clock.advance(PASSED_S * 1_000)


def let_expire(one: RestartableNode) -> None:
    one.clock.advance((LIVES_S - PASSED_S) * 1_000)


async def full(one: RestartableNode, name: str, **options: Any) -> tuple[Client, Received]:
    """Return a client whose window is full, and the message that fills it."""
    client = await one.client(name, found=ONE_AT_A_TIME, **options)
    await client.subscribe(("t", 1))
    return client, await _filled(one, client)


async def _filled(one: RestartableNode, client: Client) -> Received:
    publisher = await one.client("filler")
    await publisher.publish("t", [b"first"])
    await publisher.leave()
    return await client.message()


@STEPS
async def test_a_message_that_waits_for_room(tmp_path: Path, step_ms: int) -> None:
    async with restartable_node(tmp_path) as one:
        publisher = await one.client("p")
        for is_over in (False, True):
            reader, first = await full(one, "r")
            await publisher.publish("t", [b"waits"], found=EXPIRY)
            step(one, step_ms)
            if is_over:
                let_expire(one)
            await publisher.publish("t", [b"last"])
            await reader.acknowledge(first)
            if not is_over:
                waits = await reader.message()
                assert (waits.payload, left(waits)) == (b"waits", LIVES_S - PASSED_S)
                await reader.acknowledge(waits)
            assert payloads(await reader.take(1)) == [b"last"]
            await reader.leave()


@STEPS
async def test_a_message_that_comes_after_a_step(tmp_path: Path, step_ms: int) -> None:
    """Also while unix time is held level because of a step backwards."""
    async with restartable_node(tmp_path) as one:
        one.clock.step_unix(step_ms)
        one.clock.advance(1_800_000)
        publisher, reader = await one.client("p"), await one.client("r")
        await reader.subscribe(("t", 1), ("q", 0))
        await publisher.publish("t", [b"live"], found=EXPIRY)
        live = await reader.message()
        assert (live.payload, left(live)) == (b"live", LIVES_S)
        publisher.send(wire.publish("q", b"at once", found=EXPIRY))
        assert left(await reader.message()) == LIVES_S
        one.produce(
            [(b"t", b"foreign")],
            headers=[("expires-at", b"%d" % one.clock.deadline_unix_ms(LIVES_S * 1_000))],
        )
        foreign = await reader.message()
        assert (foreign.payload, left(foreign)) == (b"foreign", LIVES_S)


@STEPS
@pytest.mark.parametrize("is_over", [False, True])
async def test_messages_for_a_session_that_is_away(
    tmp_path: Path,
    step_ms: int,
    is_over: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    async with restartable_node(tmp_path) as one:
        publisher, reader = await one.client("p"), await one.client("r", kept=True)
        await reader.subscribe(("t", 1))
        await reader.leave()
        await publisher.publish("t", [b"before"], found=EXPIRY)
        step(one, step_ms)
        await publisher.publish("t", [b"after"], found=EXPIRY)
        if is_over:
            let_expire(one)
        reader = await one.client("r", kept=True)
        came = [(found.payload, left(found)) for found in await reader.take(2 - is_over)]
        spent = LIVES_S - PASSED_S
        both = [(b"before", spent), (b"after", LIVES_S)]
        assert came == ([(b"after", PASSED_S)] if is_over else both)


@STEPS
async def test_what_is_sent_again(tmp_path: Path, step_ms: int) -> None:
    async with restartable_node(tmp_path) as one:
        publisher, reader = await one.client("p"), await one.client("r", kept=True)
        await reader.subscribe(("t", 1))
        await publisher.publish("t", [b"again"], found=EXPIRY)
        await reader.message()
        for is_over in (False, True):
            await reader.drop()
            await one.gone("r")
            (let_expire if is_over else lambda one: step(one, step_ms))(one)
            reader = await one.client("r", kept=True)
            if not is_over:
                again = await reader.message()
                assert (again.payload, left(again)) == (b"again", LIVES_S - PASSED_S)
        await reader.silent()


@STEPS
async def test_a_retained_message(tmp_path: Path, step_ms: int) -> None:
    async with restartable_node(tmp_path) as one:
        one.clock.step_unix(HOUR_MS // 2)  # so that it has come after a step, and before one
        publisher, reader = await one.client("p"), await one.client("r")
        await publisher.publish("t", [b"kept"], retain=True, found=EXPIRY)
        deadline = b"%d" % one.clock.deadline_unix_ms(LIVES_S * 1_000)
        headers = [("expires-at", deadline), ("mqtt.retain", b"1")]
        one.produce([(b"foreign", b"kept")], headers=headers)
        await one.delivered()
        step(one, step_ms)
        store = one.adapter.node.retained
        store.sweep(lambda _error: None)
        for topic in ("t", "foreign"):
            await reader.subscribe((topic, 1))
            [kept] = await reader.take(1)
            assert (kept.payload, left(kept)) == (b"kept", LIVES_S - PASSED_S)
        let_expire(one)
        await reader.subscribe(("t", 1), ("foreign", 1))
        await reader.silent()
        assert len(store) == 2
        store.sweep(lambda _error: None)
        assert len(store) == 0


@STEPS
async def test_a_message_at_qos_0(tmp_path: Path, step_ms: int) -> None:
    """Also a member's share, and what another protocol has appended."""
    async with restartable_node(tmp_path) as one:
        publisher = await one.client("p")
        readers = [await one.client(name) for name in ("r", "m")]
        for reader, topic_filter in zip(readers, ("t", "$share/g/t"), strict=True):
            await reader.subscribe((topic_filter, 0))
        one.clock.step_unix(step_ms)
        one.clock.advance(PASSED_S * 1_000)
        publisher.send(wire.publish("t", b"at once", found=EXPIRY))
        for reader in readers:
            assert left(await reader.message()) == LIVES_S


@STEPS
async def test_a_shared_message(tmp_path: Path, step_ms: int) -> None:
    async with restartable_node(tmp_path) as one:
        publisher, member = await one.client("p"), await one.client("m", kept=True)
        await member.subscribe(("$share/g/t", 1))
        await member.leave()
        await publisher.publish("t", [b"before"], found=EXPIRY)
        step(one, step_ms)
        member = await one.client("m", kept=True)
        [came] = await member.take(1)
        assert (came.payload, left(came)) == (b"before", LIVES_S - PASSED_S)
        await member.leave()
        await publisher.publish("t", [b"gone"], found=EXPIRY)
        step(one, -step_ms)
        let_expire(one)
        await publisher.publish("t", [b"last"])
        member = await one.client("m", kept=True)
        assert payloads(await member.take(1)) == [b"last"]


@STEPS
async def test_a_delayed_message_lives_from_when_it_is_due(
    tmp_path: Path, step_ms: int
) -> None:
    async with restartable_node(tmp_path) as one:
        publisher, reader = await one.client("p"), await one.client("r", kept=True)
        await reader.subscribe(("t", 1))
        await reader.leave()
        await publisher.publish("$delayed/5/t", [b"later"], found=EXPIRY)
        await due(one, 5_000)
        step(one, step_ms)
        reader = await one.client("r", kept=True)
        [later] = await reader.take(1)
        assert (later.payload, left(later)) == (b"later", LIVES_S - PASSED_S)


@STEPS
async def test_a_will(tmp_path: Path, step_ms: int) -> None:
    async with restartable_node(tmp_path) as one:
        one.clock.step_unix(step_ms)
        one.clock.advance(1_000)
        watcher = await one.client("w")
        await watcher.subscribe(("will", 1))
        will = wire.WillMessage("will", b"gone", 1, properties=EXPIRY)
        owner = await one.client("o", will=will)
        await owner.drop()
        found = await watcher.receive(Kind.PUBLISH)
        assert (found.payload, left(found)) == (b"gone", LIVES_S)


async def test_a_message_that_becomes_due_after_a_step_lives_from_then(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        publisher, reader = await one.client("p"), await one.client("r", kept=True)
        await reader.subscribe(("t", 1))
        await reader.leave()
        await publisher.publish("$delayed/5/t", [b"later"], found=EXPIRY)
        one.clock.step_unix(-10_000)
        await due(one, 15_000)
        reader = await one.client("r", kept=True)
        [later] = await reader.take(1)
        assert (later.payload, left(later)) == (b"later", LIVES_S)


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
async def test_across_a_restart_the_wall_clock_decides(tmp_path: Path, step_ms: int) -> None:
    """The new process knows of no step: what was stored before one is older, or younger, by it."""
    async with restartable_node(tmp_path) as one:
        publisher = await one.client("p")
        reader = await one.client("r", found=((Prop.SESSION_EXPIRY, 0xFFFFFFFF),))
        await reader.subscribe(("t", 1))
        await reader.leave()
        await publisher.publish("t", [b"before"], found=EXPIRY)
        one.clock.step_unix(step_ms)
        one.clock.begin_anew()
        await one.restart()
        publisher = await one.client("p")
        await publisher.publish("t", [b"after"], found=EXPIRY)
        reader = await one.client("r", clean=False)
        came = payloads(await reader.take(2 if step_ms < 0 else 1))
        assert came == ([b"before", b"after"] if step_ms < 0 else [b"after"])
