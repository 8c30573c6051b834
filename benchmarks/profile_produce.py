"""Profile of the server: CPU time per 16 KB produce request, and its distribution.

A raw client sends prepared requests of one 16 KB batch, several in flight on one connection, so
that nearly all that is measured is the server. The profile is py-spy's, by self time.
"""

import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from benchmarks.report import Report, Row, Sample
from benchmarks.sides import Options, Side, interleaved, sides, temporary_folder
from tests.support.kafka_wire import PRODUCE, Connection, batch, produce_body, request
from tests.support.process_usage import cpu_s
from tests.support.topics import create_topic

REQUESTS: Final = 20_000
IN_FLIGHT: Final = 5
RECORDS: Final = 16
RECORD_BYTES: Final = 1_000
PROFILE_S: Final = 8
ROWS_SHOWN: Final = 20
_LINE_NUMBER: Final = re.compile(r":\d+\)$")


def run(options: Options) -> Report:
    """Measure the processor time of both sides, then profile ours."""
    count = options.scaled(REQUESTS)
    rows: list[Row] = []
    profile: list[dict[str, Any]] = []
    for flush, peer_syncs in (("never", False), ("group", True)):
        with sides(flush, peer_syncs=peer_syncs) as found:
            samples = interleaved(found, lambda side: cpu_us(side, count), runs=options.runs)
            rows += [
                Row(f"flush={flush}", s.name, s.policy, "us CPU", samples[s.name])
                for s in found
            ]
            if flush == "never":
                profile = profiled(found[0])
    return Report(
        "profile",
        "Server CPU per produce request of one 16 KB batch",
        rows,
        [],
        [f"{count:,} requests a run, {IN_FLIGHT} in flight on one connection"],
        profile,
    )


def cpu_us(side: Side, count: int) -> Sample:
    """Return microseconds of the server's processor time per request."""
    topic = create_topic(side.bootstrap)
    before_s, started = cpu_s(side.server.pid), time.monotonic()
    send(side.server.kafka_port, topic, count)
    used_s = cpu_s(side.server.pid) - before_s
    return Sample(used_s / count * 1e6, {"requests/s": count / (time.monotonic() - started)})


def send(port: int, topic: str, count: int) -> None:
    """Produce ``count`` batches of 16 KB, a few in flight, each acknowledged without error."""
    data = batch([b"x" * RECORD_BYTES] * RECORDS)
    frame = request(PRODUCE, 3, 7, produce_body([(topic, 0, data)]))
    with Connection(port) as connection:
        connection.socket.sendall(frame * IN_FLIGHT)
        for n in range(count):
            answer = connection.read()
            # Correlation id, topics, the name, partitions, the partition, then the error code.
            code_at = 4 + 4 + 2 + len(topic) + 4 + 4
            assert answer[code_at : code_at + 2] == b"\0\0"
            if n < count - IN_FLIGHT:
                connection.socket.sendall(frame)


def profiled(side: Side) -> list[dict[str, Any]]:
    """Return the functions of ours that take most of the time, with their shares."""
    pyspy = shutil.which("py-spy") or str(Path(sys.executable).with_name("py-spy"))
    if not Path(pyspy).exists():
        sys.exit("py-spy is missing: install the extra headgate[bench]")
    with temporary_folder() as folder:
        output = folder / "stacks"
        command = [
            pyspy, "record", "--native", "--pid", str(side.server.pid), "--rate", "500",
            "--duration", str(PROFILE_S), "--format", "raw", "--output", str(output),
        ]  # fmt: skip
        topic = create_topic(side.bootstrap)
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as spy:
            while spy.poll() is None:
                send(side.server.kafka_port, topic, 2_000)
            assert spy.stderr is not None
            assert output.exists(), spy.stderr.read()
        return shares(output.read_text().splitlines())


def shares(stacks: list[str]) -> list[dict[str, Any]]:
    """Return the innermost functions of collapsed stacks with their share of all samples.

    C functions are named with the Python function that called them; those without a symbol
    (libc's memory copies among them) count for their caller. Waiting for a lock is left out.
    """
    counts: Counter[str] = Counter()
    for line in stacks:
        stack, _, samples = line.rpartition(" ")
        if "PyThread_acquire_lock" in stack:
            continue  # a thread that has nothing to do
        named = [frame for frame in stack.split(";") if not frame.startswith("0x")]
        counts[_words(named)] += int(samples)
    total = sum(counts.values())
    return [
        {"where": where, "share": samples / total}
        for where, samples in counts.most_common(ROWS_SHOWN)
    ]


def _words(frames: list[str]) -> str:
    innermost = _LINE_NUMBER.sub(")", frames[-1]) if frames else "?"
    if ".py" in innermost:
        return innermost
    callers = [frame for frame in frames if ".py" in frame]
    caller = _LINE_NUMBER.sub(")", callers[-1]) if callers else "?"
    return f"{innermost} < {caller}"
