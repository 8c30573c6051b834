"""SIGTERM: who waits is answered, who produces is acknowledged, and the node ends in time."""

import struct
from pathlib import Path

import pytest

from tests.support.gateway import Gateway
from tests.support.kafka_wire import FETCH, Connection, batch, fetch_body, request, text
from tests.support.waiting import wait_until

pytestmark = pytest.mark.crash

JOIN_GROUP = 11
NOT_COORDINATOR = 16


def join_body(group: str) -> bytes:
    """Encode JoinGroup v1 of a new member of one protocol."""
    head = text(group) + struct.pack(">ii", 10_000, 60_000) + text("") + text("consumer")
    return head + struct.pack(">i", 1) + text("range") + struct.pack(">i", 0)


def test_who_waits_is_answered_when_the_node_stops(tmp_path: Path) -> None:
    # Whoever waited for any of these would take longer than ``stop`` has patience.
    settings = {"groups.initial_rebalance_delay_ms": 60_000, "node.drain_s_max": 600}
    with Gateway(tmp_path, settings) as gateway:
        port = gateway.kafka_port
        with Connection(port) as joining, Connection(port) as fetching:
            assert fetching.call(3, 1, struct.pack(">i", 1) + text("orders"))
            assert fetching.produce("orders", 0, batch([b"one"])) == (0, 0)
            joining.socket.sendall(request(JOIN_GROUP, 1, 7, join_body("readers")))
            wait = fetch_body("orders", 0, 1, wait_ms=600_000)
            fetching.socket.sendall(request(FETCH, 4, 8, wait))
            wait_until(
                lambda: gateway.metric("headgate_group_members") == 1,
                within_s=30,
                what="a member",
            )
            assert gateway.metric("headgate_groups") == 1
            assert gateway.metric("headgate_budget_waiting") == 0
            gateway.stop()
            correlation_id, code = struct.unpack_from(">ih", joining.read())
            assert (correlation_id, code) == (7, NOT_COORDINATOR)
            assert struct.unpack_from(">i", fetching.read())[0] == 8
