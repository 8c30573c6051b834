"""M6: 1,000,000 retained topics: memory, time to start with them, all of them to one client.

Mosquitto keeps them in memory and writes them when it stops; it is stopped in order. Ours is
killed (kill -9): it has kept each before it was acknowledged.
"""

import time
from functools import partial
from typing import Final

from benchmarks.mqtt.mosquitto import Mosquitto
from benchmarks.mqtt.report import MqttReport
from benchmarks.mqtt.sides import (
    GROUP,
    PEER,
    MqttSide,
    measured_fresh,
    ours,
    peer,
)
from benchmarks.report import Sample
from benchmarks.rounds import rows_of
from benchmarks.sides import OURS, Options, client
from tests.support.process_usage import resident_bytes

TOPICS: Final = 1_000_000
IDS: Final = 50_000  # packet ids go round with the topics
TAG: Final = "retained"
SAVED: Final = "written when it stops"
RUNS_MAX: Final = 3
MADE: Final = {(OURS, GROUP): ours("group"), (PEER, SAVED): peer(persistent=True)}
CASES: Final = {
    "time to start": "s",
    "memory after the start": "bytes each",
    "memory when published": "bytes each",
    "publishing them": "msg/s",
    "all to one subscriber": "msg/s",
}


def run(options: Options) -> MqttReport:
    """Fill, end, start again, read."""
    topics = options.part(TOPICS, multiple=IDS)
    runs = min(options.runs, RUNS_MAX)
    samples = measured_fresh(MADE, partial(retained, topics=topics), runs=runs)
    rows = [
        row
        for case, unit in CASES.items()
        for row in rows_of(
            case, unit, {k: [one_of(s, case) for s in v] for k, v in samples.items()}
        )
    ]
    return MqttReport(
        "m6",
        f"MQTT: {topics:,} retained topics, 64 B each",
        rows,
        [],
        [
            f"{runs} runs on new servers; time to start: until the last one can be had",
            "headgate is killed and mosquitto stopped before the start",
        ],
    )


def one_of(sample: Sample, case: str) -> Sample:
    """Return one of the figures of a run."""
    return Sample(sample.extra[case])


def retained(side: MqttSide, *, topics: int) -> Sample:
    """Return the seconds to start, and everything else beside."""
    place = ["--port", side.port, "--tag", TAG, "--topics", topics, "--messages", topics]
    idle_bytes = resident_bytes(side.server.pid)
    filled = client("mqtt_store", "fill", *place, "--retain")
    filled_bytes = resident_bytes(side.server.pid)
    if isinstance(side.server, Mosquitto):
        side.server.stop()
    else:
        side.server.kill()
    started_s = time.monotonic()
    side.server.launch()
    client("mqtt_store", "probe", *place)
    seconds = time.monotonic() - started_s
    started_bytes = resident_bytes(side.server.pid)
    read = client("mqtt_store", "all", *place)
    return Sample(
        seconds,
        {
            "time to start": seconds,
            "memory after the start": (started_bytes - idle_bytes) / topics,
            "memory when published": (filled_bytes - idle_bytes) / topics,
            "publishing them": filled["rate"],
            "all to one subscriber": read["rate"],
        },
    )
