"""A Fetch of millions of empty topics at a live node: it is closed, and others are served."""

import struct
from pathlib import Path
from typing import Final

import pytest

from tests.crash.silent_connections import check_log
from tests.support.gateway import Gateway
from tests.support.kafka_wire import FETCH, Connection, batch, request
from tests.support.process_usage import forget_peak, peak_bytes, resident_bytes
from tests.support.topics import create_topic

pytestmark = pytest.mark.crash

TOPICS: Final = 2_500_000
HEAD: Final = struct.pack(">iiiib", -1, 0, 1, 1 << 20, 0)
EMPTY: Final = struct.pack(">hi", 0, 0)  # no name, no partitions


def test_a_fetch_of_millions_of_empty_topics_is_closed(tmp_path: Path) -> None:
    said = request(FETCH, 4, 1, HEAD + struct.pack(">i", TOPICS) + EMPTY * TOPICS)
    with Gateway(tmp_path / "data", {"log.level": "warning"}) as gateway:
        topic = create_topic(gateway.bootstrap)
        with Connection(gateway.kafka_port) as healthy, Connection(gateway.kafka_port) as one:
            assert healthy.produce(topic, 0, batch([b"0"])) == (0, 0)
            before_bytes = resident_bytes(gateway.pid)
            forget_peak(gateway.pid)
            one.socket.sendall(said)
            with pytest.raises(ConnectionError):
                one.read()
            # The request, and as much again while its buffer grows: no object for each topic.
            assert peak_bytes(gateway.pid) - before_bytes < 3 * len(said)
            assert healthy.produce(topic, 0, batch([b"1"])) == (0, 1)
        check_log(gateway, "a large Fetch")
