"""Memory while the bucket refuses: what producers push is bounded by the config, then refused.

The bucket answers 503 SlowDown to every PUT of an object, as S3 does under load.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.crash.s3_gateways import SETTINGS
from tests.support import kafka_wire
from tests.support.gateway import Gateway
from tests.support.process_usage import forget_peak, peak_bytes, resident_bytes
from tests.support.s3_proxy import Answer, S3Proxy
from tests.support.s3_servers import moto
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

pytestmark = pytest.mark.crash

MIB: Final = 1_048_576
QUEUED_BYTES_MAX: Final = 16 * MIB
CONNECTIONS: Final = 8
BODY: Final = kafka_wire.produce_body([("pushed", 0, kafka_wire.batch([bytes(900_000)]))])
PUSHED_BYTES_MIN: Final = 512 * MIB
WITHIN_S: Final = 240.0
# What waits is held once, as batches or built objects; a request of 0.9 MB on each connection, and
# the two bodies that are being sent; the rest is what the allocator keeps.
GROWTH_BYTES_MAX: Final = QUEUED_BYTES_MAX + 64 * MIB
BOUNDED: Final = {
    **SETTINGS,
    "storage.queued_bytes_max": QUEUED_BYTES_MAX,
    "storage.reserve_bytes": MIB,
    "storage.append_bytes_max": 4 * MIB,
    "storage.object_bytes": 2 * MIB,
    "storage.uploads_max": 2,
    "broker.wal_queued_bytes_max": QUEUED_BYTES_MAX,
    "broker.wal_queued_bytes_low": QUEUED_BYTES_MAX // 2,
    "adapters.kafka.unacknowledged_bytes_max": 4 * MIB,
}


class Pushing:
    """Producers that push on and on. ``refused_bytes``: what was answered with an error."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.refused_bytes = 0
        self._threads = [threading.Thread(target=self._run) for _ in range(CONNECTIONS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self) -> None:
        while not self._stop.is_set():
            # One whose append waits for the bucket is answered late: it goes, its append stays.
            with (
                suppress(OSError, AssertionError),
                kafka_wire.Connection(self._port, timeout_s=1) as connection,
            ):
                while not self._stop.is_set():
                    answer = connection.call(kafka_wire.PRODUCE, 3, BODY)
                    if kafka_wire.produce_errors(answer)[0][0]:
                        with self._lock:
                            self.refused_bytes += len(BODY)


@contextmanager
def pushing(port: int) -> Iterator[Pushing]:
    found = Pushing(port)
    found.start()
    try:
        yield found
    finally:
        found.stop()


def is_taken(gateway: Gateway) -> bool:
    with (
        suppress(OSError),
        kafka_wire.Connection(gateway.kafka_port) as connection,
    ):
        answer = connection.call(kafka_wire.PRODUCE, 3, BODY)
        return kafka_wire.produce_errors(answer)[0][0] == 0
    return False


@pytest.mark.parametrize("refuse_after_ms", [500, 600_000], ids=["in time", "by its bound"])
def test_a_bucket_that_refuses_bounds_what_is_held(
    tmp_path: Path, refuse_after_ms: int
) -> None:
    with moto(tmp_path) as server, S3Proxy(server.endpoint_url) as proxy:
        settings = {**server.behind(proxy.url).settings(), **BOUNDED}
        settings["storage.refuse_after_ms"] = refuse_after_ms
        with Gateway(tmp_path / "data", settings, env=server.env) as gateway:
            create_topic(gateway.bootstrap, name="pushed")
            assert is_taken(gateway)  # what an upload imports and makes is there
            idle_bytes = resident_bytes(gateway.pid)
            forget_peak(gateway.pid)
            rule = proxy.add(Answer(503, "SlowDown"), method="PUT", key=".seg")

            with pushing(gateway.kafka_port) as load:
                wait_until(
                    lambda: load.refused_bytes >= PUSHED_BYTES_MIN,
                    within_s=WITHIN_S,
                    what="much is refused",
                )
            grown_bytes = peak_bytes(gateway.pid) - idle_bytes
            hits = rule.hits
            rule.off()

            assert hits > 0
            assert grown_bytes < GROWTH_BYTES_MAX, f"grew by {grown_bytes / MIB:.0f} MiB"
            wait_until(
                lambda: is_taken(gateway), within_s=WITHIN_S, what="the bucket takes it again"
            )
            wait_until(
                lambda: resident_bytes(gateway.pid) < idle_bytes + GROWTH_BYTES_MAX,
                within_s=WITHIN_S,
                what="its memory is near what it was",
            )
