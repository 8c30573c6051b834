"""M5: 10,000 idle connections: resident memory for each, and how fast they open."""

from functools import partial
from typing import Final

from benchmarks.mqtt.report import MqttReport
from benchmarks.mqtt.sides import (
    CONNECTIONS,
    GROUP,
    PEER,
    UNSYNCED,
    MqttSide,
    against_sink,
    cpu_of,
    measured_fresh,
    ours,
    peer,
)
from benchmarks.report import Ratio, Row, Sample, number
from benchmarks.rounds import rows_of
from benchmarks.sides import OURS, Options, client

BAR_KB: Final = 20.0
KB: Final = 1024
MADE: Final = {(OURS, GROUP): ours("group"), (PEER, UNSYNCED): peer()}
CASES: Final[dict[str, list[str]]] = {"idle": [], "idle, 1 subscription": ["--subscribed"]}


def run(options: Options) -> MqttReport:
    """Measure with and without a subscription, each time on a new server."""
    count = options.part(CONNECTIONS)
    rows: list[Row] = []
    for case, more in CASES.items():
        place = ["--connections", count, *more]
        samples = measured_fresh(MADE, partial(idle, place=place), runs=options.runs)
        rows += rows_of(f"memory, {case}", "KB each", samples)
        rates = {
            key: [Sample(sample.extra["connects/s"]) for sample in some]
            for key, some in samples.items()
        }
        rows += rows_of(f"opening, {case}", "connects/s", rates)
    ceiling = against_sink("mqtt_idle", "--connections", count, plain=True)
    return MqttReport(
        "m5",
        f"MQTT: {count:,} idle connections, resident memory each, connect rate",
        rows,
        [Ratio("KB for each idle connection", rows[0].median, BAR_KB, at_most=True)],
        [
            "a new server each time; memory is what it grew by when all are open",
            f"the load generator's ceiling (a sink): {number(ceiling['rate'])} connects/s",
        ],
    )


def idle(side: MqttSide, *, place: list[object]) -> Sample:
    """Return KB for each connection, with the connect rate beside."""
    extra: dict[str, float] = {}
    with cpu_of(side, extra):
        found = client("mqtt_idle", "--port", side.port, "--pid", side.server.pid, *place)
    return Sample(
        found["each_bytes"] / KB,
        {
            **extra,
            "KB after a ping": found["pinged_bytes"] / KB,
            "connects/s": found["rate"],
            "client CPU share": found["client_cpu"],
        },
    )
