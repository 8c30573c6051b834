"""S3: a queue with a backlog: how fast it is received, what it costs in memory.

What waits was appended by Kafka, to the topic that the queue is of. ElasticMQ keeps all in its
heap; beside it stands a backlog that this holds.
"""

from typing import Final

from benchmarks.report import Ratio, Row, Sample
from benchmarks.rounds import ratio_to_peer, rows_of
from benchmarks.sides import OURS, Options, client
from benchmarks.sqs.report import SqsReport
from benchmarks.sqs.sides import ELASTICMQ, GROUP, IN_MEMORY, SqsSide, all_sides, client_sample
from tests.support.process_usage import resident_bytes
from tests.support.sqs_gateway import SqsGateway
from tests.support.waiting import wait_until

MESSAGES: Final = 10_000_000
PEER_MESSAGES: Final = 200_000
IN_FLIGHT: Final = 100_000
TAKEN: Final = 100_000
MESSAGE_BYTES: Final = 100
CONNECTIONS: Final = 16
BAR: Final = 5.0
_MB: Final = 1e6
_SEEN_S_MAX: Final = 120.0


def run(options: Options) -> SqsReport:
    """Measure ours with the whole backlog, the peer with what it holds."""
    count = options.part(MESSAGES)
    samples: dict[tuple[str, str], list[Sample]] = {
        (OURS, GROUP): [],
        (ELASTICMQ, IN_MEMORY): [],
    }
    memory: list[Row] = []
    with all_sides(policies=("group",), with_moto=False) as found:
        ours, theirs = found
        url = _filled(ours, count, memory)
        samples[OURS, GROUP] = [_drained(ours, url) for _ in range(options.runs)]
        _hold(ours, url, memory)
        place = ["--url", theirs.new_queue(), "--connections", CONNECTIONS]
        client_sample(theirs, "sqs_send", *place, "--messages", PEER_MESSAGES, "--batch", 10)
        part = PEER_MESSAGES // (2 * options.runs)
        samples[ELASTICMQ, IN_MEMORY] = [
            _drained(theirs, place[1], messages=part) for _ in range(options.runs)
        ]
    rows = rows_of("receive 10 + delete", "msg/s", samples)
    return SqsReport(
        "s3",
        f"SQS: {count:,} messages of {MESSAGE_BYTES} B wait ({PEER_MESSAGES:,} at the peer)",
        [*rows, *memory],
        [Ratio("headgate / elasticmq", ratio_to_peer(rows, GROUP, peer=ELASTICMQ), BAR)],
        ["one fill; memory is what the process grew by; the bodies are in the log"],
    )


def _filled(side: SqsSide, count: int, memory: list[Row]) -> str:
    """Return a queue with so many messages behind it."""
    url = side.new_queue(VisibilityTimeout="43200")
    name = url.rsplit("/", 1)[1]
    before_bytes = resident_bytes(side.server.pid)
    server = side.server
    assert isinstance(server, SqsGateway)
    client("produce", server.bootstrap, name, "--records", count, "--bytes", MESSAGE_BYTES)
    wait_until(lambda: side.ready(url) >= count, within_s=_SEEN_S_MAX, what="all are ready")
    grown = resident_bytes(side.server.pid) - before_bytes
    memory.append(Row(f"{count:,} ready", OURS, GROUP, "MB", [Sample(grown / _MB)]))
    return url


def _drained(side: SqsSide, url: object, *, messages: int = TAKEN) -> Sample:
    place = ["--url", url, "--connections", CONNECTIONS]
    return client_sample(side, "sqs_drain", *place, "--messages", messages)


def _hold(side: SqsSide, url: str, memory: list[Row]) -> None:
    """Receive and keep messages; note what each costs."""
    before_bytes = resident_bytes(side.server.pid)
    place = ["--url", url, "--connections", CONNECTIONS, "--visibility-s", 43_200, "--keep"]
    found = client_sample(side, "sqs_drain", *place, "--messages", IN_FLIGHT)
    each_bytes = (resident_bytes(side.server.pid) - before_bytes) / IN_FLIGHT
    memory.append(
        Row(
            f"{IN_FLIGHT:,} in flight",
            OURS,
            GROUP,
            "bytes each",
            [Sample(each_bytes, {"received/s": found.value})],
        )
    )
