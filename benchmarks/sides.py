"""The two sides of a comparison: ours and Apache Kafka, each a fresh server on this machine."""

import json
import os
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.report import Sample
from gateway.testing.process import Program
from tests.support.gateway import Gateway
from tests.support.kafka_server import KafkaServer
from tests.support.process_usage import cpu_s
from tests.support.toolchain import CACHE, KAFKA_SERVER_POM, ROOT, ToolMissing, need

OURS: Final = "headgate"
PEER: Final = "kafka"
_CLIENT_S_MAX: Final = 600.0
_GB: Final = 1e9
_IDLE_SHARE = 0.1
_IDLE_S_MAX = 60.0


@dataclass(frozen=True)
class Options:
    """Choices of the command line."""

    runs: int = 5
    quick: bool = False
    gib: float | None = None
    minutes: float | None = None
    scale: float = 1.0
    before: Path | None = None

    def scaled(self, count: int) -> int:
        """Return an amount of work; half of it when a quick look is enough."""
        return count // 2 if self.quick else count

    def part(self, count: int, *, multiple: int = 1) -> int:
        """Return what ``--scale`` leaves of an amount, whole multiples, at least one."""
        return max(1, int(count * self.scale) // multiple) * multiple

    def records(self, gib: float, record_bytes: int = 1024) -> int:
        """Return how many records are that much, or what ``--gib`` says; quick: an eighth."""
        wanted = self.gib or (gib / 8 if self.quick else gib)
        return int(wanted * 2**30) // record_bytes

    def seconds(self, minutes: float) -> float:
        """Return how long that is, or what ``--minutes`` says; quick: an eighth."""
        return 60 * (self.minutes or (minutes / 8 if self.quick else minutes))


@dataclass(frozen=True)
class Side:
    """A running server and the words for it in the table."""

    name: str
    policy: str
    server: Gateway | KafkaServer

    @property
    def bootstrap(self) -> str:
        """Bootstrap address for clients."""
        return self.server.bootstrap


@contextmanager
def sides(
    ours: str,
    *,
    peer_syncs: bool,
    settings: Mapping[str, object] | None = None,
    peer_settings: Mapping[str, object] | None = None,
    peer_pom: Path = KAFKA_SERVER_POM,
) -> Iterator[list[Side]]:
    """Start ours with the flush policy ``ours`` and Kafka with or without a sync per append."""
    try:
        need("java", "mvn")
    except ToolMissing as error:
        sys.exit(f"{error}; no figure without its peer")
    kafka_settings = {"log.flush.interval.messages": 1} if peer_syncs else {}
    policy = "log.flush.interval.messages=1" if peer_syncs else "no fsync (its default)"
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        gateway_settings = {
            "storage.flush": ours,
            "log.level": "warning",
            **(settings or {}),
        }
        gateway = stack.enter_context(Gateway(folder / "headgate", gateway_settings))
        kafka = stack.enter_context(
            KafkaServer(
                folder / "kafka", {**kafka_settings, **(peer_settings or {})}, pom=peer_pom
            )
        )
        yield [Side(OURS, f"flush={ours}", gateway), Side(PEER, policy, kafka)]


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder on the disk of this checkout, which is not a disk in memory."""
    folder = Path(os.environ.get("HEADGATE_BENCH_DIR", CACHE)) / f"bench-{uuid.uuid4().hex[:8]}"
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def client(module: str, *arguments: object, within_s: float = _CLIENT_S_MAX) -> dict[str, Any]:
    """Run a client in a process of its own and return what it prints."""
    command = [sys.executable, "-m", f"benchmarks.clients.{module}", *map(str, arguments)]
    lines = Program(command, cwd=ROOT, merge_errors=False).finish(within_s=within_s)
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def interleaved(
    found: Sequence[Side], run: Callable[[Side], Sample], *, runs: int, warm_ups: int = 1
) -> dict[str, list[Sample]]:
    """Run on each side in turn; the first ``warm_ups`` rounds (a JVM warms up) do not count.

    Every other round goes backwards, so that what a side leaves to the next falls on both.
    """
    samples: dict[str, list[Sample]] = {side.name: [] for side in found}
    for turn in range(warm_ups + runs):
        for side in found[:: -1 if turn % 2 else 1]:
            wait_until_idle([one.server.pid for one in found])
            sample = run(side)
            if turn >= warm_ups:
                samples[side.name].append(sample)
                sys.stderr.write(f"  {side.name} {sample.value:,.0f}\n")
    return samples


def wait_until_idle(pids: Sequence[int]) -> None:
    """Let all servers finish what they do in the background: it must not cost the other's run.

    Idle is a processor share below ``_IDLE_SHARE`` for a second. After ``_IDLE_S_MAX`` the run
    begins regardless.
    """
    pause = threading.Event()
    deadline_s = time.monotonic() + _IDLE_S_MAX
    while time.monotonic() < deadline_s:
        before_s = [cpu_s(pid) for pid in pids]
        pause.wait(1)
        after_s = [cpu_s(pid) for pid in pids]
        if max(a - b for a, b in zip(after_s, before_s, strict=True)) < _IDLE_SHARE:
            return


@contextmanager
def cpu_per_gb(side: Side, sent_bytes: int, extra: dict[str, float]) -> Iterator[None]:
    """Add the server's processor seconds per gigabyte within the block to ``extra``."""
    before_s = cpu_s(side.server.pid)
    yield
    extra["server CPU s/GB"] = (cpu_s(side.server.pid) - before_s) / (sent_bytes / _GB)
