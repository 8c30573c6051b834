"""M3: QoS 0, 64 B, one publisher to ten subscribers: deliveries per second."""

from functools import partial
from typing import Final

from benchmarks.mqtt.report import MqttReport
from benchmarks.mqtt.sides import (
    GROUP,
    NEVER,
    PEER,
    THREE,
    MqttSide,
    against_sink,
    client_sample,
    started,
)
from benchmarks.report import Ratio, Sample, number
from benchmarks.rounds import measured, ratio_to_peer, rows_of
from benchmarks.sides import Options

SECONDS = 4
PLACE: Final = ("--subscribers", 10, "--ahead", 10_000)
BAR = 5.0


def run(options: Options) -> MqttReport:
    """Measure all sides in turn, and the sink."""
    seconds = options.scaled(SECONDS)
    with started(THREE) as found:
        samples = measured(found, partial(flow, seconds=seconds), runs=options.runs)
    ceiling = against_sink("mqtt_flow", *PLACE, "--seconds", seconds)
    rows = rows_of("1 to 10", "msg/s", samples)
    return MqttReport(
        "m3",
        "MQTT QoS 0 fan-out, 64 B, 1 publisher to 10 subscribers, deliveries/s",
        rows,
        [
            Ratio(
                f"headgate ({policy}) / mosquitto", ratio_to_peer(rows, policy, peer=PEER), BAR
            )
            for policy in (GROUP, NEVER)
        ],
        [
            f"{seconds} s a run; at most 10,000 messages the slowest has not seen; none was lost",
            "headgate keeps every message in its log, and that is checked",
            f"the load generator's ceiling (a sink): {number(ceiling['rate'])} deliveries/s",
        ],
    )


def flow(side: MqttSide, *, seconds: float) -> Sample:
    """Return deliveries per second, of all subscribers together."""
    return client_sample(side, "mqtt_flow", *PLACE, "--seconds", seconds)
