"""M10: a burst of QoS 0 to a subscriber that reads at a third of the rate: how much of it comes."""

from functools import partial
from typing import Final

from benchmarks.clients.mqtt_packets import IDS
from benchmarks.mqtt.report import MqttReport
from benchmarks.mqtt.sides import THREE, MqttSide, measured_fresh
from benchmarks.report import Sample
from benchmarks.rounds import rows_of
from benchmarks.sides import Options, client

COUNT: Final = 2_000_000


def run(options: Options) -> MqttReport:
    """Measure all sides in turn, each on a new server: memory that was used stays with it."""
    count = options.part(options.scaled(COUNT), multiple=IDS)
    samples = measured_fresh(THREE, partial(burst, count=count), runs=options.runs)
    return MqttReport(
        "m10",
        f"MQTT QoS 0, 64 B: {count:,} messages at once, read at a third of the rate",
        rows_of("burst", "% delivered", samples),
        [],
        [
            "a publisher sends as fast as its broker reads, its reader takes a third of that",
            "what came was in order, and nothing came twice",
            "memory: the most that the process grew by",
        ],
    )


def burst(side: MqttSide, *, count: int) -> Sample:
    """Return the share that was delivered, and what it cost."""
    found = client(
        "mqtt_burst", "--port", side.port, "--pid", side.server.pid, "--count", count
    )
    return Sample(
        found["share"] * 100,
        {
            "memory MiB": found["grown_mib"],
            "published msg/s": found["publish_rate"],
            "read msg/s": found["read_rate"],
            "server CPU us/msg": found["server_cpu_s"] / found["messages"] * 1e6,
        },
    )
