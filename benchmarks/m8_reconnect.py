"""M8: 10,000 sessions, each wanting 5 of 1 M topics, return together behind 10 M messages.

What it costs the server: processor seconds from the first of the messages to the last delivery.
"""

import uuid
from functools import partial
from typing import Final

from benchmarks.mqtt.report import MqttReport
from benchmarks.mqtt.sides import (
    THREE,
    MqttSide,
    cpu_of,
    measured_fresh,
)
from benchmarks.report import Sample
from benchmarks.rounds import rows_of
from benchmarks.sides import Options, client

SESSIONS: Final = 10_000
TOPICS: Final = 1_000_000
IDS: Final = 50_000  # packet ids go round with the topics
WANTED: Final = 5
ROUNDS: Final = 10
RUNS_MAX: Final = 1
CLIENT_S_MAX: Final = 1_800.0


def run(options: Options) -> MqttReport:
    """Measure each side on a new server."""
    topics = options.part(TOPICS, multiple=IDS)
    sessions = min(options.part(SESSIONS), topics // WANTED)
    runs = min(options.runs, RUNS_MAX)
    work = partial(together, topics=topics, sessions=sessions)
    samples = measured_fresh(THREE, work, runs=runs)
    return MqttReport(
        "m8",
        f"MQTT: {sessions:,} sessions return together behind {topics * ROUNDS:,} messages",
        rows_of("processor seconds in all", "s", samples),
        [],
        [
            f"each wants {WANTED} of {topics:,} topics: {ROUNDS} QoS 1 messages of 64 B on each",
            f"{sessions * WANTED * ROUNDS:,} deliveries: every session got exactly its own",
        ],
    )


def together(side: MqttSide, *, topics: int, sessions: int) -> Sample:
    """Return the server's processor seconds for the publishing and the return."""
    publishing: dict[str, float] = {}
    returning: dict[str, float] = {}
    place = ["--port", side.port, "--tag", uuid.uuid4().hex[:8]]
    shape = ["--topics", topics, "--sessions", sessions, "--wanted", WANTED, "--rounds", ROUNDS]
    client("mqtt_sessions", "leave", *place, *shape)
    with cpu_of(side, publishing):
        filled = client(
            "mqtt_store",
            "fill",
            *place,
            "--topics",
            topics,
            "--messages",
            topics * ROUNDS,
            within_s=CLIENT_S_MAX,
        )
    with cpu_of(side, returning):
        found = client("mqtt_sessions", "back", *place, *shape)
    return Sample(
        publishing["server CPU s"] + returning["server CPU s"],
        {
            "publishing CPU s": publishing["server CPU s"],
            "return CPU s": returning["server CPU s"],
            "published msg/s": filled["rate"],
            "return s": found["seconds"],
            "delivered msg/s": found["rate"],
        },
    )
