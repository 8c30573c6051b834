"""M1 to M3: what one publisher sends as fast as it may, on its way through each side."""

from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks.mqtt.report import MqttReport
from benchmarks.mqtt.sides import (
    PEER,
    THREE,
    MqttSide,
    against_sink,
    client_sample,
    started,
)
from benchmarks.report import Ratio, Row, Sample, number
from benchmarks.rounds import measured, ratio_to_peer, rows_of
from benchmarks.sides import Options

SECONDS: Final = 4


def flow_report(  # noqa: PLR0913 - what the three differ in
    options: Options,
    name: str,
    title: str,
    *,
    case: str,
    place: Sequence[object],
    bars: Mapping[str, float],
    bound: str,
    unit: str = "msg/s",
) -> MqttReport:
    """Measure all sides in turn, and the sink.

    ``place`` are the client's arguments, ``bars`` what each flush policy is held to, ``bound`` says
    how far the publisher may be ahead.
    """
    seconds = options.scaled(SECONDS)
    arguments = [*place, "--seconds", seconds]

    def flow(side: MqttSide) -> Sample:
        return client_sample(side, "mqtt_flow", *arguments)

    with started(THREE) as found:
        samples = measured(found, flow, runs=options.runs)
    ceiling = against_sink("mqtt_flow", *arguments)
    rows = rows_of(case, "msg/s", samples)
    notes = [
        f"{seconds} s a run; {bound}; none was lost",
        "headgate keeps every message in its log, and that is checked",
        f"the load generator's ceiling (a sink): {number(ceiling['rate'])} {unit}",
    ]
    return MqttReport(name, title, rows, ratios(rows, bars), notes)


def ratios(rows: Sequence[Row], bars: Mapping[str, float]) -> list[Ratio]:
    """Return ours by Mosquitto's for each flush policy that has a bar."""
    return [
        Ratio(f"headgate ({policy}) / mosquitto", ratio_to_peer(rows, policy, peer=PEER), bar)
        for policy, bar in bars.items()
    ]
