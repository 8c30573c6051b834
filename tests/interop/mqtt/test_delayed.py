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
    async def run() -> tuple[list[link.Message], float]:
        client = PahoLink(Endpoint(target.port, version), stem)
        await client.open(clean=True)
        await client.subscribe(f"{stem}/#", 2)
        begin_s = time.monotonic()
        for qos in (0, 1, 2):
            await client.publish(link.Message(f"$delayed/1/{stem}/a", b"%d" % qos, qos))
        await client.publish(link.Message(f"{stem}/now", b"now", 1))
        came = [await client.inbox.next() for _ in range(4)]
        await client.close()
        return came, time.monotonic() - begin_s

    came, took_s = asyncio.run(run())

    assert [message.topic for message in came] == [f"{stem}/now", *[f"{stem}/a"] * 3]
    assert sorted(message.payload for message in came[1:]) == [b"0", b"1", b"2"]
    assert took_s >= 1
