"""QoS 0 to a client that does not read for a while: a burst comes, and memory is bounded."""

import socket
import threading
from pathlib import Path
from typing import Final, Self

import pytest

from tests.support import mqtt_wire as wire
from tests.support.mqtt_gateway import MqttGateway
from tests.support.mqtt_raw import RawClient
from tests.support.mqtt_wire import V3_1_1, Kind
from tests.support.process_usage import resident_bytes
from tests.support.waiting import wait_until

COUNT: Final = 100_000
PAYLOAD_BYTES: Final = 64
TOPIC: Final = "burst"
PACKET_BYTES: Final = 2 + 2 + len(TOPIC) + PAYLOAD_BYTES
PER_WRITE: Final = 1_000
ROOM_BYTES: Final = 256 * 1024
GROWTH_BYTES_MAX: Final = 64 << 20
DONE_S_MAX: Final = 120.0
WHAT: Final = "all came, or is counted"


class SlowReader:
    """A subscriber that reads nothing until it is told to, and little stays in its socket."""

    def __init__(self, gateway: MqttGateway) -> None:
        self.client = RawClient(gateway.mqtt_port, version=V3_1_1)
        self.client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        self.client.connect("slow")
        assert self.client.subscribe((TOPIC, 0)) == [0]
        self.numbers: list[int] = []
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.client.socket.shutdown(socket.SHUT_RDWR)
        if self._thread.ident is not None:
            self._thread.join()
        self.client.drop()

    def read(self) -> None:
        """Read from now on."""
        self._thread.start()

    def _read(self) -> None:
        data = b""
        while came := self.client.socket.recv(1 << 20):
            data += came
            whole = len(data) - len(data) % PACKET_BYTES
            for at in range(0, whole, PACKET_BYTES):
                end = at + PACKET_BYTES
                self.numbers.append(int(data[end - PAYLOAD_BYTES : end]))
            data = data[whole:]


def publish_burst(gateway: MqttGateway) -> None:
    with RawClient(gateway.mqtt_port, version=V3_1_1) as publisher:
        publisher.connect("fast")
        for start in range(0, COUNT, PER_WRITE):
            publisher.send(
                *[
                    wire.publish(TOPIC, b"%064d" % number, version=V3_1_1)
                    for number in range(start, start + PER_WRITE)
                ]
            )
        publisher.send(wire.PINGREQ)
        publisher.receive(Kind.PINGRESP)


def dropped(gateway: MqttGateway) -> int:
    name = 'headgate_mqtt_messages_total{what="dropped"}'
    rows = [line.rsplit(" ", 1) for line in gateway.http("/metrics")[1].splitlines()]
    return int(next(float(value) for key, value in rows if key == name))


def slow_receivers(gateway: MqttGateway) -> int:
    return int(gateway.metric("headgate_mqtt_lagging_receivers"))


def slow_gateway(folder: Path, **settings: object) -> MqttGateway:
    return MqttGateway(
        folder / "data",
        {
            "adapters.mqtt.receiver_bytes_max": ROOM_BYTES,
            **{f"adapters.mqtt.{key}": value for key, value in settings.items()},
        },
    )


def test_a_burst_reaches_who_reads_it_later(tmp_path: Path) -> None:
    with slow_gateway(tmp_path) as gateway, SlowReader(gateway) as reader:
        before_bytes = resident_bytes(gateway.pid)
        publish_burst(gateway)
        wait_until(lambda: slow_receivers(gateway) == 1, within_s=DONE_S_MAX, what="it lags")
        assert resident_bytes(gateway.pid) - before_bytes < GROWTH_BYTES_MAX
        reader.read()
        wait_until(lambda: len(reader.numbers) >= COUNT, within_s=DONE_S_MAX, what=WHAT)
        wait_until(lambda: not slow_receivers(gateway), within_s=DONE_S_MAX, what=WHAT)
        assert resident_bytes(gateway.pid) - before_bytes < GROWTH_BYTES_MAX
        publish_burst(gateway)  # to who is live again, and reads
        wait_until(lambda: len(reader.numbers) >= 2 * COUNT, within_s=DONE_S_MAX, what=WHAT)
        assert reader.numbers == [*range(COUNT), *range(COUNT)]
        assert dropped(gateway) == 0


@pytest.mark.parametrize(
    "bound", [{"qos0_lag_bytes_max": 1 << 20}, {"qos0_lag_ms_max": 0}], ids=["bytes", "time"]
)
def test_what_is_beyond_the_bounds_is_dropped_and_counted(
    tmp_path: Path, bound: dict[str, int]
) -> None:
    with slow_gateway(tmp_path, **bound) as gateway, SlowReader(gateway) as reader:
        publish_burst(gateway)
        wait_until(lambda: dropped(gateway) > 0, within_s=DONE_S_MAX, what="some are dropped")
        assert dropped(gateway) < COUNT
        reader.read()
        wait_until(
            lambda: len(reader.numbers) + dropped(gateway) >= COUNT,
            within_s=DONE_S_MAX,
            what=WHAT,
        )
        wait_until(lambda: not slow_receivers(gateway), within_s=DONE_S_MAX, what=WHAT)
        assert len(reader.numbers) + dropped(gateway) == COUNT
        assert reader.numbers == sorted(set(reader.numbers))
