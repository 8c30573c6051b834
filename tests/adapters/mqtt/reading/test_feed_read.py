"""Reading messages of a feed again."""

from pathlib import Path

from tests.adapters.mqtt.live import running
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind

COUNT = 5


async def test_only_what_is_asked_for_is_decoded(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.connected()
        for number in range(COUNT):  # one batch each
            client.send(wire.publish("t", b"%d" % number, qos=1, packet_id=number + 1))
            await client.receive(Kind.PUBACK)
        node = live.adapter.node
        assert node is not None
        [feed] = node.feeds

        one, after_one = await feed.read(1, end=2)
        all_of_it, after_all = await feed.read(0)

    assert ([run.payloads for run in one], after_one) == ([[b"1"]], 2)
    assert [run.payloads for run in all_of_it] == [[b"%d" % number] for number in range(COUNT)]
    assert after_all == COUNT
