"""A6: 1,000,000 messages wait: memory, ready after kill -9, and how fast they are consumed."""

import time
import uuid
from typing import Final

from benchmarks.amqp.report import AmqpReport
from benchmarks.amqp.sides import CLASSIC, GROUP, PEER, AmqpSide, client_sample, ratio, started
from benchmarks.clients.amqp_wire import connected, declare_queue
from benchmarks.report import Ratio, Row, Sample
from benchmarks.rounds import keep, rows_of
from benchmarks.sides import OURS, Options, wait_until_idle
from tests.support.amqp_raw import Closed
from tests.support.process_usage import resident_bytes
from tests.support.waiting import wait_until

MESSAGES: Final = 1_000_000
BYTES: Final = 100
WINDOW: Final = 1_000
PREFETCH: Final = 1_000
READY_S_MAX: Final = 600.0
FILL_S_MAX: Final = 500.0
MEMORY_BAR: Final = 0.1
READY_BAR: Final = 1 / 3
DRAIN_BAR: Final = 2.0
_MB: Final = 1e6
_UNITS: Final = {"memory": "MB", "ready after kill -9": "s", "drain": "msg/s"}
_BARS: Final = {
    "memory": (MEMORY_BAR, True),
    "ready after kill -9": (READY_BAR, True),
    "drain": (DRAIN_BAR, False),
}

Samples = dict[str, dict[tuple[str, str], list[Sample]]]


def run(options: Options) -> AmqpReport:
    """Measure both sides in turn, each time on new servers: memory that was used stays."""
    messages = options.part(MESSAGES)
    samples: Samples = {case: {(OURS, GROUP): [], (PEER, CLASSIC): []} for case in _UNITS}
    for turn in range(options.runs):
        with started() as found:
            for side in found[:: -1 if turn % 2 else 1]:
                for case, sample in backlog(side, messages).items():
                    keep(samples[case], side, sample)
    rows: list[Row] = []
    ratios: list[Ratio] = []
    for case, unit in _UNITS.items():
        some = rows_of(case, unit, samples[case])
        bar, at_most = _BARS[case]
        ratios.append(ratio(some, round(bar, 2), case=case, at_most=at_most))
        rows += some
    return AmqpReport(
        "a6",
        f"AMQP: {messages:,} persistent messages of {BYTES} B wait in a durable queue",
        rows,
        ratios,
        [
            "memory: what the process grew by, 2 s or more after the last confirm",
            "ready: from the start of the process until the queue is declared with all in it",
            f"consumed after that start, with prefetch {PREFETCH:,}; none was lost",
        ],
    )


def backlog(side: AmqpSide, messages: int) -> dict[str, Sample]:
    """Fill a queue, kill the server, start it, and consume the queue."""
    queue = f"backlog-{uuid.uuid4().hex[:8]}"
    empty_bytes = resident_bytes(side.server.pid)
    place = ["--queue", queue, "--messages", messages]
    fill = ["--consumers", 0, "--window", WINDOW, "--bytes", BYTES, "--seconds", FILL_S_MAX]
    filled = client_sample(side, "amqp_flow", [*place, *fill])
    wait_until_idle([side.server.pid])
    full_bytes = resident_bytes(side.server.pid)
    side.server.kill()
    started_s = time.monotonic()
    side.server.launch()
    wait_until(
        lambda: is_ready(side, queue, messages),
        within_s=READY_S_MAX,
        what=f"{side.name} has all {messages:,} messages",
    )
    ready_s = time.monotonic() - started_s
    memory = Sample(
        (full_bytes - empty_bytes) / _MB,
        {"resident MB": full_bytes / _MB, "filled msg/s": filled.value},
    )
    drained = client_sample(side, "amqp_drain", [*place, "--prefetch", PREFETCH])
    return {"memory": memory, "ready after kill -9": Sample(ready_s), "drain": drained}


def is_ready(side: AmqpSide, queue: str, messages: int) -> bool:
    """Whether a client sees all messages of the queue."""
    try:
        client = connected(side.port)
    except (Closed, OSError, AssertionError):  # refused while it starts
        return False
    try:
        return declare_queue(client, queue) >= messages
    except (Closed, OSError, AssertionError):  # refused while it recovers
        return False
    finally:
        client.close()
