"""M2: QoS 1, 64 B, 100 unacknowledged at most, one publisher to one subscriber."""

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
PLACE: Final = ("--qos", 1, "--window", 100, "--ahead", 1_000)
BARS: Final = {GROUP: 1.5, NEVER: 3.0}


def run(options: Options) -> MqttReport:
    """Measure all sides in turn, and the sink."""
    seconds = options.scaled(SECONDS)
    with started(THREE) as found:
        samples = measured(found, partial(flow, seconds=seconds), runs=options.runs)
    ceiling = against_sink("mqtt_flow", *PLACE, "--seconds", seconds)
    rows = rows_of("1 to 1, window 100", "msg/s", samples)
    return MqttReport(
        "m2",
        "MQTT QoS 1, 64 B, window 100, 1 publisher to 1 subscriber",
        rows,
        [
            Ratio(
                f"headgate ({policy}) / mosquitto", ratio_to_peer(rows, policy, peer=PEER), bar
            )
            for policy, bar in BARS.items()
        ],
        [
            f"{seconds} s a run; at most 1,000 messages not seen yet; none was lost",
            "headgate keeps every message in its log, and that is checked",
            f"the load generator's ceiling (a sink): {number(ceiling['rate'])} msg/s",
        ],
    )


def flow(side: MqttSide, *, seconds: float) -> Sample:
    """Return messages per second, each acknowledged on both ways."""
    return client_sample(side, "mqtt_flow", *PLACE, "--seconds", seconds)
