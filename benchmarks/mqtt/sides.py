"""The sides of an MQTT comparison: ours at one or two flush policies, and Mosquitto."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from benchmarks.clients.connections import raise_file_limit
from benchmarks.mqtt.mosquitto import Mosquitto, find_mosquitto
from benchmarks.report import Sample
from benchmarks.rounds import keep
from benchmarks.sides import OURS, client, temporary_folder
from gateway.testing.ports import free_port
from gateway.testing.process import Program
from tests.support.gateway import Gateway
from tests.support.process_usage import cpu_s
from tests.support.toolchain import ROOT
from tests.support.waiting import wait_until

PEER: Final = "mosquitto"
GROUP: Final = "flush=group"
NEVER: Final = "flush=never"
UNSYNCED: Final = "nothing kept or synced"
CONNECTIONS: Final = 10_000
LOG_TOPIC: Final = "mqtt"
_SINK_S_MAX: Final = 30.0
_KEPT_S_MAX: Final = 30.0


class MqttGateway(Gateway):
    """A gateway with an MQTT listener beside Kafka's."""

    def __init__(self, data_dir: Path, settings: Mapping[str, object] | None = None) -> None:
        self.mqtt_port = free_port()
        super().__init__(
            data_dir,
            {
                "log.level": "warning",
                "adapters.mqtt.bind": f"127.0.0.1:{self.mqtt_port}",
                "adapters.mqtt.websocket.enabled": "false",
                "adapters.mqtt.connections_max": 2 * CONNECTIONS,
                "adapters.mqtt.connections_per_ip_max": 2 * CONNECTIONS,
                "adapters.mqtt.connects_per_s_max": 1_000_000,
                **(settings or {}),
            },
        )


@dataclass(frozen=True)
class MqttSide:
    """A running broker and the words for it in the table."""

    name: str
    policy: str
    server: MqttGateway | Mosquitto

    @property
    def port(self) -> int:
        """Port to which clients connect."""
        return self.server.mqtt_port


Made = Callable[[Path], MqttGateway | Mosquitto]


def ours(flush: str, settings: Mapping[str, object] | None = None) -> Made:
    """Return how our side is made."""
    return lambda folder: MqttGateway(folder, {"storage.flush": flush, **(settings or {})})


def peer(*, persistent: bool = False) -> Made:
    """Return how the other side is made."""
    return lambda folder: Mosquitto(folder, persistent=persistent)


THREE: Final[Mapping[tuple[str, str], Made]] = {
    (OURS, GROUP): ours("group"),
    (OURS, NEVER): ours("never"),
    (PEER, UNSYNCED): peer(),
}


@contextmanager
def started(made: Mapping[tuple[str, str], Made]) -> Iterator[list[MqttSide]]:
    """Start each side on empty data; all of them run at once, and are used in turn."""
    find_mosquitto()
    raise_file_limit(CONNECTIONS)  # what is started inherits it
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        found = []
        for number, ((name, policy), make) in enumerate(made.items()):
            server = make(folder / f"{name}-{number}")
            stack.enter_context(server)
            found.append(MqttSide(name, policy, server))
        yield found


def measured_fresh(
    made: Mapping[tuple[str, str], Made], run: Callable[[MqttSide], Sample], *, runs: int
) -> dict[tuple[str, str], list[Sample]]:
    """Run on each side in turn, each time on a new server with empty data."""
    samples: dict[tuple[str, str], list[Sample]] = {key: [] for key in made}
    for _turn in range(runs):
        for key, make in made.items():
            with started({key: make}) as (side,):
                keep(samples, side, run(side))
    return samples


@contextmanager
def sink(*options: object, plain: bool = False) -> Iterator[Program]:
    """Start the broker that only says yes; its port is ``port_of_sink``."""
    module = "benchmarks.clients.mqtt_plain_sink" if plain else "benchmarks.clients.mqtt_sink"
    command = [sys.executable, "-m", module, *map(str, options)]
    program = Program(command, cwd=ROOT)
    try:
        program.wait_for_line("port ", within_s=_SINK_S_MAX)
        yield program
    finally:
        program.kill()


def port_of_sink(program: Program) -> int:
    """Return where the sink listens."""
    return int(program.lines[0].split()[1])


def against_sink(module: str, *arguments: object, plain: bool = False) -> dict[str, Any]:
    """Return what a client finds against the sink: its ceiling."""
    with sink(plain=plain) as program:
        place = ["--port", port_of_sink(program), "--pid", program.pid]
        return client(module, *place, *arguments)


@contextmanager
def cpu_of(side: MqttSide, extra: dict[str, float]) -> Iterator[None]:
    """Add the server's processor seconds within the block to ``extra``."""
    before_s = cpu_s(side.server.pid)
    yield
    extra["server CPU s"] = cpu_s(side.server.pid) - before_s


def kept(side: MqttSide) -> int:
    """Return how many records our topic of MQTT messages has had; 0 for the peer."""
    if not isinstance(side.server, MqttGateway):
        return 0
    consumer = Consumer({"bootstrap.servers": side.server.bootstrap, "group.id": "bench"})
    try:
        place = TopicPartition(LOG_TOPIC, 0)
        return int(consumer.get_watermark_offsets(place, timeout=_KEPT_S_MAX)[1])
    except KafkaException:
        return 0  # before the first message there is no topic
    finally:
        consumer.close()


def client_sample(
    side: MqttSide, module: str, *arguments: object, message_bytes: int = 64
) -> Sample:
    """Run a client once: its rate, the server's CPU time and the client's share of a CPU.

    Error: ``TimeoutError`` when our log does not hold every message that was published.
    """
    before = kept(side)
    found = client(module, "--port", side.port, "--pid", side.server.pid, *arguments)
    published = found["messages"]
    wait_until(
        lambda: side.name == PEER or kept(side) - before == published,
        within_s=_KEPT_S_MAX,
        what=f"all {published:,} messages are in the log",
    )
    messages = found.get("deliveries", found["messages"])
    return Sample(
        found["rate"],
        {
            "server CPU us/msg": found["server_cpu_s"] / messages * 1e6,
            "server CPU s/GB": found["server_cpu_s"] / (messages * message_bytes / 1e9),
            "client CPU share": found["client_cpu"],
        },
    )
