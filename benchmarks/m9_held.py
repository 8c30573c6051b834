"""M9: 10,000 connections are held, each with a topic of its own, while messages go to each."""

from functools import partial

from benchmarks.mqtt.report import MqttReport
from benchmarks.mqtt.sides import (
    CONNECTIONS,
    GROUP,
    NEVER,
    PEER,
    THREE,
    MqttSide,
    against_sink,
    client_sample,
    started,
)
from benchmarks.report import Sample, number
from benchmarks.rounds import measured, ratio_to_peer, rows_of
from benchmarks.sides import Options

SECONDS = 4


def run(options: Options) -> MqttReport:
    """Measure all sides in turn, and the sink."""
    count = options.part(CONNECTIONS)
    place = ["--connections", count, "--seconds", options.scaled(SECONDS)]
    with started(THREE) as found:
        samples = measured(found, partial(held, place=place), runs=options.runs)
    ceiling = against_sink("mqtt_held", *place, plain=True)
    rows = rows_of("deliveries", "msg/s", samples)
    ratios = ", ".join(
        f"{ratio_to_peer(rows, policy, peer=PEER):.2f} ({policy})" for policy in (GROUP, NEVER)
    )
    return MqttReport(
        "m9",
        f"MQTT QoS 0, 64 B: {count:,} connections held, messages to each in turn",
        rows,
        [],
        [
            f"headgate / mosquitto: {ratios}",
            "none was lost and no connection closed",
            f"the load generator's ceiling (a sink that routes): {number(ceiling['rate'])} msg/s",
        ],
    )


def held(side: MqttSide, *, place: list[object]) -> Sample:
    """Return deliveries per second."""
    return client_sample(side, "mqtt_held", *place)
