"""M4: 200 connections that publish QoS 1, 64 B, one message at a time each."""

from functools import partial
from typing import Final

from benchmarks.mqtt.flow import ratios
from benchmarks.mqtt.report import MqttReport
from benchmarks.mqtt.sides import (
    GROUP,
    NEVER,
    THREE,
    MqttSide,
    against_sink,
    client_sample,
    started,
)
from benchmarks.report import Sample, number
from benchmarks.rounds import measured, rows_of
from benchmarks.sides import Options

CONNECTIONS = 200
SECONDS = 4
BARS: Final = {GROUP: 0.8, NEVER: 1.0}


def run(options: Options) -> MqttReport:
    """Measure all sides in turn, and the sink."""
    seconds = options.scaled(SECONDS)
    place = ["--connections", CONNECTIONS, "--seconds", seconds]
    with started(THREE) as found:
        samples = measured(found, partial(turns, place=place), runs=options.runs)
    ceiling = against_sink("mqtt_one_in_flight", *place, plain=True)
    rows = rows_of(f"{CONNECTIONS} connections", "msg/s", samples)
    return MqttReport(
        "m4",
        "MQTT QoS 1, 64 B, 200 connections, each waits for its PUBACK",
        rows,
        ratios(rows, BARS),
        [
            f"{seconds} s a run; nobody is subscribed; a topic for each connection",
            f"the load generator's ceiling (a sink): {number(ceiling['rate'])} msg/s",
        ],
    )


def turns(side: MqttSide, *, place: list[object]) -> Sample:
    """Return acknowledged messages per second."""
    return client_sample(side, "mqtt_one_in_flight", *place)
