"""M1: QoS 0, 64 B, one publisher to one subscriber."""

from functools import partial

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
AHEAD = 10_000
BAR = 3.0


def run(options: Options) -> MqttReport:
    """Measure all sides in turn, and the sink."""
    seconds = options.scaled(SECONDS)
    with started(THREE) as found:
        samples = measured(found, partial(flow, seconds=seconds), runs=options.runs)
    ceiling = against_sink("mqtt_flow", "--seconds", seconds, "--ahead", AHEAD)
    rows = rows_of("1 to 1", "msg/s", samples)
    return MqttReport(
        "m1",
        "MQTT QoS 0, 64 B, 1 publisher to 1 subscriber",
        rows,
        [
            Ratio(
                f"headgate ({policy}) / mosquitto", ratio_to_peer(rows, policy, peer=PEER), BAR
            )
            for policy in (GROUP, NEVER)
        ],
        [
            f"{seconds} s a run; at most {AHEAD:,} messages not seen yet; none was lost",
            "headgate keeps every message in its log, and that is checked",
            f"the load generator's ceiling (a sink): {number(ceiling['rate'])} msg/s",
        ],
    )


def flow(side: MqttSide, *, seconds: float) -> Sample:
    """Return messages per second."""
    return client_sample(side, "mqtt_flow", "--seconds", seconds, "--ahead", AHEAD)
