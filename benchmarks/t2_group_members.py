"""T2: heartbeats of 10,000 members of groups of KIP-848 on one node.

``python -m benchmarks t2 --scale 0.1`` has 1,000 members and a tenth of the time.
"""

from functools import partial
from typing import Any, Final

from benchmarks.report import Ratio, Report, Row, Sample
from benchmarks.sides import OURS, PEER, Options, Side, client, interleaved, sides
from tests.support.kafka_wire import Connection, text
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

MEMBERS: Final = 10_000
GROUP_MEMBERS: Final = 100
SECONDS: Final = 20
BAR: Final = 1.0
FIND_COORDINATOR: Final = 10
COORDINATOR_S_MAX: Final = 60
FIGURES: Final = {"processor time": ("cpu_us", "us"), "p99": ("p99_ms", "ms")}


def run(options: Options) -> Report:
    """Measure processor time and latency of a heartbeat, all members at one each 5 s."""
    members = options.part(MEMBERS, multiple=GROUP_MEMBERS)
    rows: list[Row] = []
    found_by: dict[str, list[dict[str, Any]]] = {OURS: [], PEER: []}
    with sides("group", peer_syncs=True) as found:
        topics = {s.name: create_topic(s.bootstrap, partitions=1) for s in found}
        measure = partial(
            heartbeats,
            topics=topics,
            members=members,
            seconds=options.part(options.scaled(SECONDS)),
            found_by=found_by,
        )
        interleaved(found, measure, runs=options.runs)
        for case, (key, unit) in FIGURES.items():
            rows += [
                Row(
                    case, s.name, s.policy, unit, [Sample(one[key]) for one in found_by[s.name]]
                )
                for s in found
            ]
    medians = {(row.case, row.side): row.median for row in rows}
    return Report(
        "t2",
        f"A heartbeat of {members:,} members in groups of {GROUP_MEMBERS}, one each 5 s",
        rows,
        [
            Ratio(
                f"{case}: headgate / kafka",
                medians[case, OURS] / medians[case, PEER],
                BAR,
                at_most=True,
            )
            for case in FIGURES
        ],
        ["ten connections, ConsumerGroupHeartbeat v1; the groups are stable"],
    )


def heartbeats(
    side: Side,
    *,
    topics: dict[str, str],
    members: int,
    seconds: int,
    found_by: dict[str, list[dict[str, Any]]],
) -> Sample:
    """Run the members once; return the processor microseconds of a heartbeat."""
    with Connection(side.server.kafka_port) as connection:
        for number in range(members // GROUP_MEMBERS):
            body = text(f"t2-{number}")
            wait_until(
                partial(has_coordinator, connection, body),
                within_s=COORDINATOR_S_MAX,
                what="a coordinator for each group",
            )
    found = client(
        "group_heartbeats", "--port", side.server.kafka_port, "--pid", side.server.pid,
        "--topic", topics[side.name], "--members", members,
        "--groups", members // GROUP_MEMBERS, "--seconds", seconds,
    )  # fmt: skip
    found_by[side.name].append(found)
    return Sample(found["cpu_us"])


def has_coordinator(connection: Connection, body: bytes) -> bool:
    """Return whether a group has a coordinator; Kafka makes the topic of its offsets first."""
    return connection.call(FIND_COORDINATOR, 0, body)[:2] == bytes(2)
