"""L1: the longest turn of the loop under hostile and very large requests of each protocol."""

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.hostile import kafka, mqtt, sqs
from benchmarks.report import Ratio, Report, Row, Sample
from benchmarks.sides import OURS, Options, temporary_folder
from benchmarks.watched_gateway import PLACE, TURN
from gateway.testing.ports import free_port
from tests.support.gateway import Gateway
from tests.support.process_usage import resident_bytes
from tests.support.topics import create_topic

BAR_MS: Final = 50.0
ANSWERED_S_MAX: Final = 120.0
QUIET_S: Final = 0.5  # what an answer leaves behind is done by then
_MIB: Final = 1 << 20
_NOTE: Final = (
    "processor time of the loop's thread; beside it the time by the clock, the seconds to the "
    "answer or the end of the connection, and the growth of resident memory"
)


class WatchedGateway(Gateway):
    """A gateway that says how long the turns of its loop are."""

    module: ClassVar[str] = "benchmarks.watched_gateway"

    def __init__(self, folder: Path) -> None:
        self.mqtt_port, self.sqs_port = free_port(), free_port()
        self.turns = folder / "turns"
        self.turns.write_bytes(bytes(TURN.size))
        super().__init__(
            folder / "headgate",
            {
                "log.level": "error",
                "adapters.mqtt.bind": f"127.0.0.1:{self.mqtt_port}",
                "adapters.mqtt.websocket.enabled": "false",
                "adapters.sqs.bind": f"127.0.0.1:{self.sqs_port}",
            },
            env={PLACE: str(self.turns)},
        )


def run(options: Options) -> Report:
    """Send each request alone, a few times."""
    with temporary_folder() as folder, WatchedGateway(folder) as server:
        create_topic(server.bootstrap, partitions=kafka.WIDE_PARTITIONS, name=kafka.WIDE)
        rows = [
            *_rows(server, "Kafka", server.kafka_port, kafka.CASES, options),
            *_rows(server, "MQTT", server.mqtt_port, mqtt.CASES, options),
            *_rows(server, "SQS", server.sqs_port, sqs.CASES, options),
        ]
    worst = max(rows, key=lambda row: row.median)
    return Report(
        "l1",
        "The longest turn of the loop under hostile requests",
        rows,
        [Ratio(f"ms of the longest turn ({worst.case})", worst.median, BAR_MS, at_most=True)],
        [_NOTE],
    )


def _rows(
    server: WatchedGateway,
    protocol: str,
    port: int,
    cases: Mapping[str, Callable[[], bytes]],
    options: Options,
) -> Iterator[Row]:
    for case, make in cases.items():
        data = make()
        _sample(server, port, data)  # what is imported or made once is not counted
        samples = [_sample(server, port, data) for _ in range(options.runs)]
        yield Row(f"{protocol}: {case}", OURS, "flush=group", "ms", samples)


def _sample(server: WatchedGateway, port: int, data: bytes) -> Sample:
    before_bytes = resident_bytes(server.pid)
    with server.turns.open("r+b", buffering=0) as file:
        file.write(bytes(TURN.size))
    started_s = time.monotonic()
    with _connected(port) as peer:
        with suppress(OSError):  # closed while we send
            peer.sendall(data)
        answered_s = _read(peer) - started_s
    time.sleep(QUIET_S)
    thread_s, clock_s = TURN.unpack(server.turns.read_bytes())
    grown_bytes = resident_bytes(server.pid) - before_bytes
    return Sample(
        thread_s * 1000,
        {
            "ms by the clock": clock_s * 1000,
            "s to the answer": answered_s,
            "MB grown": grown_bytes / _MIB,
        },
    )


@contextmanager
def _connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWERED_S_MAX) as peer:
        yield peer


def _read(peer: socket.socket) -> float:
    """Read until nothing comes any more; return when the last of it came."""
    last_s = time.monotonic()
    with suppress(OSError):
        while peer.recv(1 << 20):
            last_s = time.monotonic()
            peer.settimeout(QUIET_S)
    return last_s
