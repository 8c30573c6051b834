"""K5: idle: time from the start of the process to the first answer, and resident memory.

K5b is a node with all protocols, RabbitMQ's HTTP API and the console; it has no one peer.
"""

import shutil
import time
from pathlib import Path

from benchmarks.report import Ratio, Report, Row, Sample
from benchmarks.sides import OURS, PEER, Options, temporary_folder
from tests.support.gateway import Gateway
from tests.support.kafka_server import KafkaServer
from tests.support.kafka_wire import Connection, answers, batch
from tests.support.process_usage import resident_bytes
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

READY_S_MAX = 120
MEMORY_BAR = 0.2
READY_BAR_S = 1.0
ALL = "headgate, all protocols"
ALL_MEMORY_BAR_MB = 120.0
ALL_SETTINGS = {
    f"adapters.{name}.bind": "127.0.0.1:0"
    for name in ("mqtt", "mqtt.websocket", "sqs", "amqp", "amqp.management")
} | {"admin.bind": "127.0.0.1:0"}
MB = 1e6
SIDES = (OURS, ALL, PEER)


def run(options: Options) -> Report:
    """Start each side ``runs`` times on empty data."""
    samples: dict[str, list[Sample]] = {name: [] for name in SIDES}
    with temporary_folder() as folder:
        for turn in range(options.runs + 1):  # the first fills the page cache
            for name in SIDES:
                sample = start(name, folder / f"{name}-{turn}")
                if turn:
                    samples[name].append(sample)
    ready = [Row("ready", name, "defaults", "s", samples[name]) for name in SIDES]
    memory = [
        Row("memory, idle", name, "defaults", "MB", [_memory(s) for s in samples[name]])
        for name in SIDES
    ]
    return Report(
        "k5",
        "Idle: time to ready (first ApiVersions answer) and resident memory",
        [*ready, *memory],
        [
            Ratio("seconds to ready", ready[0].median, READY_BAR_S, at_most=True),
            Ratio("K5b: seconds to ready", ready[1].median, READY_BAR_S, at_most=True),
            Ratio("K5b: MB", memory[1].median, ALL_MEMORY_BAR_MB, at_most=True),
            Ratio(
                "memory: headgate / kafka", memory[0].median / memory[2].median, MEMORY_BAR,
                at_most=True,
            ),
        ],
        ["an empty data directory each time; memory is read when ready, then after a produce"],
    )  # fmt: skip


def _memory(sample: Sample) -> Sample:
    return Sample(sample.extra["idle MB"], {"used MB": sample.extra["used MB"]})


def start(name: str, folder: Path) -> Sample:
    """Return the seconds to the first answer, and the memory then and after a produce."""
    server: Gateway | KafkaServer
    if name == PEER:
        server = KafkaServer(folder)
    else:
        server = Gateway(folder, ALL_SETTINGS if name == ALL else None)
    if isinstance(server, KafkaServer):
        server.prepare()
    started = time.monotonic()
    program = server.launch()
    wait_until(lambda: answers(server.kafka_port), within_s=READY_S_MAX, what=f"{name} is up")
    seconds = time.monotonic() - started
    if isinstance(server, Gateway):
        server.wait_ready()
    idle = resident_bytes(program.pid)
    topic = create_topic(server.bootstrap)
    with Connection(server.kafka_port) as connection:
        assert connection.produce(topic, 0, batch([b"x"])) == (0, 0)
        assert connection.fetch(topic, 0, 0)[:2] == (0, 1)
    used = resident_bytes(program.pid)
    program.kill()
    shutil.rmtree(folder, ignore_errors=True)
    return Sample(seconds, {"idle MB": idle / MB, "used MB": used / MB})
