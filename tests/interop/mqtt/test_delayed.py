"""``$delayed/<seconds>/<topic>`` with paho: who subscribes to the topic gets it when it is due."""

import asyncio
import time

import pytest

from tests.interop.mqtt.programs import link
from tests.interop.mqtt.programs.link import V3_1_1, V5, Endpoint
from tests.interop.mqtt.programs.with_paho import PahoLink
from tests.support.mqtt_target import OWN, Target

pytestmark = [
    pytest.mark.interop,
    pytest.mark.xdist_group("mqtt-interop"),
    # Sockets that paho leaves to the garbage collector are its own affair.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    OWN,
]


@pytest.mark.parametrize("version", [V3_1_1, V5], ids=["3.1.1", "5.0"])
def test_messages_come_when_their_seconds_are_over(
    target: Target, stem: str, version: int
) -> None:
    async def run() -> list[tuple[link.Message, float]]:
        client = PahoLink(Endpoint(target.port, version), stem)
        await client.open(clean=True)
        await client.subscribe(f"{stem}/#", 2)
        begin_s = time.monotonic()
        await client.publish(link.Message(f"{stem}/now", b"now", 1))
        for qos in (0, 1, 2):
            await client.publish(link.Message(f"$delayed/1/{stem}/a", b"%d" % qos, qos))
        came = []
        for _ in range(4):
            message = await client.inbox.next()
            came.append((message, time.monotonic() - begin_s))
        await client.close()
        return came

    came = asyncio.run(run())

    assert [message.topic for message, _ in came] == [f"{stem}/now", *[f"{stem}/a"] * 3]
    assert sorted(message.payload for message, _ in came[1:]) == [b"0", b"1", b"2"]
    assert came[1][1] >= 1
