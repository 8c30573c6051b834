"""R8: resident memory over time under a mixed load of minutes, and when it is over. No peer."""

import time

from benchmarks.report import Ratio, Report, Row, Sample
from benchmarks.server_watch import Seen, Watch
from benchmarks.sides import OURS, Options, Side, client, temporary_folder
from tests.support.sqs_gateway import SqsGateway

MINUTES = 5.0
QUIET_S = 30.0
LOOKS = 30
CLIENT_S_MAX = 120.0  # for its start and its end
END_BAR_MB = 150.0
MB = 1e6
POLICY = "flush=group"


def run(options: Options) -> Report:
    """Load a node, leave it alone, and look at its memory all the while."""
    seconds = options.seconds(MINUTES)
    interval_s = (seconds + QUIET_S) / LOOKS
    with (
        temporary_folder() as folder,
        SqsGateway(folder, {"log.level": "warning"}) as server,
        Watch(Side(OURS, POLICY, server), interval_s=interval_s) as watch,
    ):
        found = client(
            "mixed_load",
            *("--kafka-port", server.kafka_port, "--mqtt-port", server.mqtt_port),
            *("--sqs-port", server.sqs_port, "--seconds", seconds),
            within_s=seconds + CLIENT_S_MAX,
        )
        time.sleep(QUIET_S)
    if found["errors"]:
        msg = f"the load ended early: {found['errors']}"
        raise RuntimeError(msg)
    counts = ", ".join(f"{name} {count:,}" for name, count in sorted(found["counts"].items()))
    return Report(
        "r8",
        "Resident memory under a mixed load (Kafka, MQTT, SQS, topics made and deleted), and after",
        rows_of(watch.seen),
        [
            Ratio(
                "memory at the end, MB",
                watch.seen[-1].memory_bytes / MB,
                END_BAR_MB,
                at_most=True,
            )
        ],
        [f"{seconds:.0f} s of load, then {QUIET_S:.0f} s without; one run", counts],
    )


def rows_of(seen: list[Seen]) -> list[Row]:
    """Return memory before, at its highest, at the end, and over time."""
    memory = [Sample(one.memory_bytes / MB, {"s": one.seconds}) for one in seen]
    peak = max(memory, key=lambda one: one.value)
    return [
        Row("before", OURS, POLICY, "MB", memory[:1]),
        Row("at most", OURS, POLICY, "MB", [peak]),
        Row("at the end", OURS, POLICY, "MB", memory[-1:]),
        Row("over time", OURS, POLICY, "MB", memory),
    ]
