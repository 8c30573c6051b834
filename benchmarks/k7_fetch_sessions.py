"""K7: processor time of a fetch of 1,000 idle partitions, full and by a session.

``python -m benchmarks k7 --scale 0.1`` has 100 partitions and a tenth of the fetches.
"""

import struct
from functools import partial
from typing import Final

from benchmarks.report import Ratio, Report, Row, Sample
from benchmarks.sides import OURS, Options, Side, interleaved, sides
from tests.support.kafka_wire import FETCH, Connection, batch, text
from tests.support.process_usage import cpu_s
from tests.support.topics import create_topic

PARTITIONS: Final = 1_000
FETCHES: Final = {"full": 1_000, "session, idle": 20_000, "session, one busy": 10_000}
BAR: Final = 0.1
_VERSION: Final = 7
_US: Final = 1e6


def run(options: Options) -> Report:
    """Measure full fetches, then sessions whose partitions are all idle, or all but one."""
    partitions = options.part(PARTITIONS)
    rows: list[Row] = []
    with sides("never", peer_syncs=False) as found:
        topics = {s.name: create_topic(s.bootstrap, partitions=partitions) for s in found}
        for case, fetches in FETCHES.items():
            measure = partial(
                cpu_us, topics=topics, partitions=partitions, case=case,
                fetches=options.part(options.scaled(fetches)),
            )  # fmt: skip
            samples = interleaved(found, measure, runs=options.runs)
            rows += [Row(case, s.name, s.policy, "us", samples[s.name]) for s in found]
    ours = {row.case: row.median for row in rows if row.side == OURS}
    return Report(
        "k7",
        f"Processor time of a fetch of {partitions:,} partitions, without a wait",
        rows,
        [
            Ratio(f"headgate: {case} / full", ours[case] / ours["full"], BAR, at_most=True)
            for case in FETCHES
            if case != "full"
        ],
        [
            "one connection, Fetch v7; `full` names all partitions and is answered for all",
            "`one busy`: one partition has a batch of 100 bytes that the session sends each time",
        ],
    )


def cpu_us(
    side: Side, *, topics: dict[str, str], partitions: int, case: str, fetches: int
) -> Sample:
    """Return the server's processor microseconds for each fetch."""
    topic = topics[side.name]
    with Connection(side.server.kafka_port) as connection:
        _, last = connection.produce(topic, 0, batch([bytes(100)]))
        first = last if case == "session, one busy" else last + 1
        offsets = [first, *[0] * (partitions - 1)]
        session, full = 0, _body(0, -1, topic, offsets)
        if case != "full":
            session = _fetch(connection, _body(0, 0, topic, offsets))
            assert session, "no session"
        before_s = cpu_s(side.server.pid)
        for number in range(fetches):
            _fetch(connection, full if case == "full" else _body(session, number + 1))
        used_s = cpu_s(side.server.pid) - before_s
        _fetch(connection, _body(session, -1, topic, []))
    return Sample(used_s / fetches * _US)


def _fetch(connection: Connection, body: bytes) -> int:
    """Send a fetch; return its session id."""
    answer = connection.call(FETCH, _VERSION, body)
    _, error, session = struct.unpack_from(">ihi", answer)
    assert not error, f"error {error}"
    return int(session)


def _body(session: int, epoch: int, topic: str = "", offsets: list[int] | None = None) -> bytes:
    """Encode Fetch v7 of partitions 0 and on, without a wait."""
    head = struct.pack(">iiiibii", -1, 0, 1, 50 << 20, 0, session, epoch)
    topics = struct.pack(">i", 0)
    if offsets is not None:
        topics = struct.pack(">i", 1) + text(topic) + struct.pack(">i", len(offsets))
        topics += b"".join(
            struct.pack(">iqqi", number, offset, -1, 1 << 20)
            for number, offset in enumerate(offsets)
        )
    return head + topics + struct.pack(">i", 0)
