"""Memory of hostile or large requests is returned to the system when the node is quiet."""

from pathlib import Path

import pytest

from tests.support import mqtt_wire as wire
from tests.support.mqtt_gateway import MqttGateway
from tests.support.process_usage import resident_bytes
from tests.support.waiting import wait_until

MIB = 1024 * 1024
CLIENTS = 200
LARGE = wire.publish("large", bytes(MIB - 1_000))


@pytest.mark.crash
def test_memory_of_half_read_packets_is_given_back(tmp_path: Path) -> None:
    with MqttGateway(tmp_path / "data") as gateway:
        with gateway.client() as client:
            client.connect("first")
        idle_bytes = resident_bytes(gateway.pid)
        clients, staying = [], []
        for number in range(CLIENTS):
            client = gateway.client()
            client.connect(f"large{number}")
            client.send(LARGE[:900_000])
            clients.append(client)
            small = gateway.client()  # what stays lies between what goes
            small.connect(f"small{number}")
            small.subscribe((f"small/{number}", 1))
            staying.append(small)
        wait_until(
            lambda: resident_bytes(gateway.pid) - idle_bytes > CLIENTS * MIB // 2,
            within_s=60,
            what="half-read packets take memory",
        )
        for client in clients:
            client.drop()
        wait_until(
            lambda: resident_bytes(gateway.pid) - idle_bytes < 64 * MIB,
            within_s=60,
            what="the memory is given back",
        )
        for client in staying:
            client.drop()
