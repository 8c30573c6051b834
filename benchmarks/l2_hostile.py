"""L2: hostile packets by the thousand, before a login and after one, and a client beside them."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchmarks.hostile.guarded_sides import (
    USER,
    GuardedKafka,
    GuardedMosquitto,
    WatchedGuarded,
)
from benchmarks.hostile.load import HostileLoad
from benchmarks.mqtt.mosquitto import mosquitto_version
from benchmarks.report import Ratio, Report, Row, Sample, kafka_versions
from benchmarks.rounds import keep
from benchmarks.sides import OURS, Options, temporary_folder
from tests.security.well_behaved_clients import HEALTHY
from tests.support.hostile import ADMIN, KAFKA, MQTT, SQS
from tests.support.hostile.users import User
from tests.support.process_usage import forget_peak, peak_bytes, resident_bytes

PACKETS: Final = 60_000  # of each kind to each side, in all runs; --scale 17 is a million
BAR_MS: Final = 50.0
TURN: Final = "ms of the longest turn"
_CHECK_EVERY_S: Final = 0.02
_SEED: Final = 18
_MIB: Final = 1 << 20
_SENT: Final = (
    "mutated and random packets over 8 connections at a time from 127.0.0.2, about 20 each (HTTP: "
    "8), counted as they are sent: a packet that ends its connection takes the rest with it; a "
    "connection waits at most 0.3 s for an answer, so the rate falls where answers are delayed on "
    "purpose (wrong passwords, one in 40 connections before login) or a packet never ends; "
    "answered is the share of connections that got all their answers or were closed"
)
_BESIDES: Final = (
    "besides: the memory at its peak and its growth, and the round trip of a client beside them "
    "that has logged in (Kafka: produce with acks=all; MQTT: publish at QoS 1 and take it; SQS: "
    "send, receive, delete; admin: look at a topic and produce); it was never refused"
)
_TURNS: Final = (
    "the longest turn of the loop is processor time of its thread, as in L1; the loop turns "
    "without rest while it is measured, which costs the rate"
)


@dataclass(frozen=True)
class L2Report(Report):
    """The outcome, with the versions of both peers."""

    def versions(self) -> dict[str, str]:
        """Return the versions of everything that takes part."""
        return {**kafka_versions(), "mosquitto": mosquitto_version(), "boto3": version("boto3")}


Server = WatchedGuarded | GuardedMosquitto | GuardedKafka


@dataclass(frozen=True)
class GuardedSide:
    """A running server and the words for it in the table."""

    name: str
    policy: str
    server: Server


Made = tuple[str, str, Callable[[Path], Server]]
PEERS: Final[dict[str, Made]] = {
    KAFKA: ("kafka", "no fsync (its default)", GuardedKafka),
    MQTT: ("mosquitto", "nothing kept or synced", GuardedMosquitto),
}
TITLES: Final = {KAFKA: "Kafka", MQTT: "MQTT", SQS: "SQS", ADMIN: "admin API"}


def run(options: Options) -> Report:
    """Throw at each side in turn, before a login and then after one."""
    with temporary_folder() as folder:
        rows = [row for protocol in TITLES for row in _rows(protocol, folder, options)]
    ours = [row for row in rows if row.side == OURS]
    worst = max(ours, key=lambda row: row.besides(TURN) or 0.0)
    turn = Ratio(f"{TURN} ({worst.case})", worst.besides(TURN) or 0.0, BAR_MS, at_most=True)
    title = "Hostile packets before and after a login"
    return L2Report("l2", title, rows, [turn], [_SENT, _BESIDES, _TURNS])


def _rows(protocol: str, folder: Path, options: Options) -> Iterator[Row]:
    made: list[Made] = [(OURS, "flush=group", WatchedGuarded)]
    made += [PEERS[protocol]] if protocol in PEERS else []
    packets = options.part(options.scaled(PACKETS)) // options.runs
    with ExitStack() as stack:
        sides = []
        for name, policy, make in made:
            server = make(folder / f"{protocol}-{name}")
            stack.enter_context(server)
            sides.append(GuardedSide(name, policy, server))
        for when, is_logged_in in (("before login", False), ("after login", True)):
            samples: dict[tuple[str, str], list[Sample]] = {
                (side.name, side.policy): [] for side in sides
            }
            for turn in range(options.runs):
                for side in sides:
                    keep(samples, side, _sample(side, protocol, is_logged_in, packets, turn))
            for (name, policy), some in samples.items():
                yield Row(f"{TITLES[protocol]}: {when}", name, policy, "packets/s", some)


def _sample(
    side: GuardedSide,
    protocol: str,
    is_logged_in: bool,  # noqa: FBT001 - one of two cases
    packets: int,
    turn: int,
) -> Sample:
    server = side.server
    who = _user(server, protocol) if is_logged_in else None
    before_bytes = resident_bytes(server.pid)
    forget_peak(server.pid)
    delays_ms: list[float] = []
    with HEALTHY[protocol](server) as check:
        check()
        if isinstance(server, WatchedGuarded):
            server.forget_turns()
        with HostileLoad(protocol, _port(server, protocol), packets, _SEED + turn, who) as load:
            while load.is_running:
                started_s = time.perf_counter()
                check()
                delays_ms.append((time.perf_counter() - started_s) * 1_000)
                time.sleep(_CHECK_EVERY_S)
            found = load.result()
    extra = {
        "MB at the peak": peak_bytes(server.pid) / _MIB,
        "MB grown": (resident_bytes(server.pid) - before_bytes) / _MIB,
        "% answered": 100 * found["answered"] / found["connections"],
        "ms beside (median)": statistics.median(delays_ms),
        "ms beside (99th)": statistics.quantiles(delays_ms, n=100, method="inclusive")[98],
    }
    if isinstance(server, WatchedGuarded):
        extra[TURN] = server.longest_turn_ms()
    return Sample(found["rate"], extra)


def _port(server: Server, protocol: str) -> int:
    names = {KAFKA: "kafka_port", MQTT: "mqtt_port", SQS: "sqs_port", ADMIN: "admin_port"}
    return int(getattr(server, names[protocol]))


def _user(server: Server, protocol: str) -> User:
    if protocol == ADMIN:
        assert isinstance(server, WatchedGuarded)
        return User("admin", (server.data_dir / "admin.token").read_text().strip(), "-")
    return USER
