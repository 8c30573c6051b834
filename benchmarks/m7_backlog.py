"""M7: one session that was away while 1,000,000 QoS 1 messages came: how fast it catches up."""

import uuid
from functools import partial
from typing import Final

from benchmarks.mqtt.report import MqttReport
from benchmarks.mqtt.sides import (
    GROUP,
    NEVER,
    PEER,
    THREE,
    MqttSide,
    cpu_of,
    port_of_sink,
    sink,
    started,
)
from benchmarks.report import Row, Sample, number
from benchmarks.rounds import measured, ratio_to_peer, rows_of
from benchmarks.sides import Options, client

MESSAGES: Final = 1_000_000
IDS: Final = 50_000  # packet ids go round with the messages
CASES: Final = {1: "1 topic", 100: "100 topics in turn"}
IN_FLIGHT: Final = 1_000


def run(options: Options) -> MqttReport:
    """Measure all sides in turn with each number of topics, and the sink."""
    messages = options.part(MESSAGES, multiple=IDS)
    rows: list[Row] = []
    ratios = []
    with started(THREE) as found:
        for topics, case in CASES.items():
            work = partial(backlog, topics=topics, messages=messages)
            some = rows_of(case, "msg/s", measured(found, work, runs=options.runs))
            for policy in (GROUP, NEVER):
                ratio = ratio_to_peer(some, policy, peer=PEER)
                ratios.append(f"{case}: headgate ({policy}) / mosquitto: {ratio:.2f}")
            rows += some
    return MqttReport(
        "m7",
        f"MQTT: one session returns to {messages:,} QoS 1 messages, 64 B",
        rows,
        [],
        [
            *ratios,
            "from CONNECT to the last message; all came once, in order",
            f"the load generator's ceiling (a sink): {number(ceiling(messages))} msg/s",
        ],
    )


def backlog(side: MqttSide, *, topics: int, messages: int) -> Sample:
    """Return messages per second from CONNECT on."""
    extra: dict[str, float] = {}
    tag = uuid.uuid4().hex[:8]
    place = ["--port", side.port, "--tag", tag, "--topics", topics, "--messages", messages]
    client("mqtt_store", "leave", *place)
    client("mqtt_store", "fill", *place)
    with cpu_of(side, extra):
        found = client("mqtt_store", "back", *place)
    return Sample(
        found["rate"],
        {
            "server CPU us/msg": extra["server CPU s"] / messages * 1e6,
            "client CPU share": found["client_cpu"],
        },
    )


def ceiling(messages: int) -> float:
    """Return what the same client takes from a sink that replays as many."""
    tag = uuid.uuid4().hex[:8]
    options = ["--replay", messages, "--replay-topic", f"{tag}/{0:07d}", "--window", IN_FLIGHT]
    with sink(*options) as program:
        place = ["--port", port_of_sink(program), "--tag", tag]
        found = client("mqtt_store", "back", *place, "--messages", messages)
    return float(found["rate"])
