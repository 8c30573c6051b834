"""Wills wait for their delay, by the monotonic clock, unless their client comes back."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.mqtt.publishing import wills as wills_module
from adapters.mqtt.publishing.wills import (
    PendingWill,
    PendingWills,
    Wills,
    decode_will,
    delay_s,
    encode_will,
)
from adapters.mqtt.wire import PublishProperties, Will
from gateway.clock import ManualClock
from gateway.errors import InvalidRecord

WILL = Will("a/gone", b"bye", qos=1, delay_interval=5)
OTHER = Will("b/gone", b"see you")
TEXTS = st.text(
    st.characters(exclude_characters="\0+#", exclude_categories=["Cs"]), max_size=20
)


class World:
    """Wills, and what they published in order."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.published: list[tuple[str, Will]] = []
        self.changed = asyncio.Event()
        self.wills = Wills(self.clock, self.publish)

    def publish(self, client_id: str, will: Will) -> None:
        self.published.append((client_id, will))
        self.changed.set()

    def pass_s(self, seconds: float) -> None:
        self.clock.advance(int(seconds * 1_000))
        self.wills.run_due()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    one = World()
    yield one
    one.wills.close()


async def test_a_will_is_published_after_its_delay_and_not_before(world: World) -> None:
    # MQTT-3.1.2-8
    world.wills.schedule("one", WILL, 5)

    world.pass_s(4.999)
    assert world.published == []
    world.pass_s(0.001)
    assert world.published == [("one", WILL)]
    assert len(world.wills) == 0


async def test_a_will_without_delay_is_published_at_once(world: World) -> None:
    world.wills.schedule("one", WILL, 0)

    assert world.published == [("one", WILL)]


async def test_a_client_that_is_back_in_time_keeps_its_will(world: World) -> None:
    # MQTT-3.1.3-9
    world.wills.schedule("one", WILL, 5)

    assert world.wills.cancel("one")
    world.pass_s(60)

    assert world.published == []
    assert not world.wills.cancel("one")


async def test_the_end_of_the_session_publishes_its_will(world: World) -> None:  # MQTT-3.1.2-8
    world.wills.schedule("one", WILL, 5)

    assert world.wills.end("one")

    assert world.published == [("one", WILL)]
    assert not world.wills.end("one")
    world.pass_s(60)
    assert len(world.published) == 1


@pytest.mark.parametrize(("session_expiry_s", "waits_s"), [(0, 0), (3, 3), (0xFFFFFFFF, 5)])
def test_the_delay_ends_with_the_session(session_expiry_s: int, waits_s: int) -> None:
    assert delay_s(WILL, session_expiry_s) == waits_s  # section 3.1.3.2.2


async def test_steps_of_the_wall_clock_move_no_will(world: World) -> None:
    world.wills.schedule("one", WILL, 5)

    world.clock.step_unix(3_600_000)
    world.wills.run_due()
    assert world.published == []
    world.clock.step_unix(-7_200_000)
    world.pass_s(5)
    assert world.published == [("one", WILL)]


async def test_a_later_will_of_a_client_replaces_the_one_before(world: World) -> None:
    world.wills.schedule("one", WILL, 5)
    world.pass_s(3)
    world.wills.schedule("one", OTHER, 4)

    world.pass_s(2)
    assert world.published == []
    world.pass_s(2)
    assert world.published == [("one", OTHER)]


async def test_the_earliest_comes_first(world: World) -> None:
    for seconds in (30, 10, 20):
        world.wills.schedule(f"after {seconds}", WILL, seconds)

    world.pass_s(60)

    assert [client_id for client_id, _ in world.published] == [
        "after 10",
        "after 20",
        "after 30",
    ]


async def test_the_timer_fires_by_itself(world: World) -> None:
    world.wills.schedule("late", OTHER, 3_600)
    world.wills.schedule("one", WILL, 1)
    world.clock.advance(999)
    world.wills.cancel("one")
    world.wills.schedule("two", WILL, 1)
    world.clock.advance(1_000)

    async with asyncio.timeout(60):
        await world.changed.wait()

    assert world.published == [("two", WILL)]


async def test_many_at_once_are_spread_over_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wills_module, "PUBLISHED_PER_TURN_MAX", 10)
    for n in range(25):
        world.wills.schedule(f"client {n}", WILL, 1)

    world.pass_s(1)
    assert len(world.published) == 10
    async with asyncio.timeout(60):
        while len(world.published) < 25:
            world.changed.clear()
            await world.changed.wait()


async def test_a_node_that_stops_publishes_none(world: World) -> None:
    world.wills.schedule("one", WILL, 5)

    world.wills.close()
    world.pass_s(60)

    assert world.published == []


def test_a_client_that_comes_and_goes_leaves_nothing_behind() -> None:
    pending = PendingWills()
    for n in range(10_000):
        pending.put(PendingWill("one", WILL, 86_400_000 + n))
        pending.pop("one")

    assert len(pending) == 0
    assert len(pending._heap) < 100


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from("abc"), st.integers(0, 9), st.sampled_from(["put", "pop", "due"])
        )
    )
)
def test_each_will_comes_out_once_and_on_time(steps: list[tuple[str, int, str]]) -> None:
    pending = PendingWills()
    model: dict[str, int] = {}
    now_ms = 0
    for client_id, number, what in steps:
        if what == "put":
            pending.put(PendingWill(client_id, WILL, now_ms + number))
            model[client_id] = now_ms + number
        elif what == "pop":
            assert (pending.pop(client_id) is None) == (model.pop(client_id, None) is None)
        else:
            now_ms += number
            due = {one.client_id for one in pending.due(now_ms, count_max=9)}
            assert due == {one for one, due_ms in model.items() if due_ms <= now_ms}
            for one in due:
                del model[one]
        assert len(pending) == len(model)
        if model:
            assert pending.next_due_ms is not None
            assert pending.next_due_ms <= min(model.values())


@given(
    will=st.builds(
        Will,
        topic=TEXTS.filter(bool),
        payload=st.binary(max_size=50),
        qos=st.integers(0, 2),
        retain=st.booleans(),
        properties=st.builds(
            PublishProperties,
            payload_format_indicator=st.none() | st.integers(0, 1),
            message_expiry_interval=st.none() | st.integers(0, 0xFFFFFFFF),
            content_type=st.none() | TEXTS,
            response_topic=st.none() | TEXTS.filter(bool),
            correlation_data=st.none() | st.binary(max_size=10),
            user_properties=st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple),
            topic_alias=st.none(),
            subscription_identifiers=st.just(()),
        ),
        delay_interval=st.integers(0, 0xFFFFFFFF),
    )
)
def test_a_stored_will_comes_back_as_it_was(will: Will) -> None:
    assert decode_will(encode_will(will)) == will


def test_a_will_of_a_later_release_is_refused() -> None:
    data = bytearray(encode_will(WILL))
    data[0] = 1

    with pytest.raises(InvalidRecord):
        decode_will(bytes(data))
