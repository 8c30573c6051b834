"""Apache Kafka in KRaft mode as a child process: the peer of benchmarks and interop tests.

``python -m tests.support.kafka_server --port 19092`` runs one until it is interrupted; the
interop suite is turned on it by ``HEADGATE_INTEROP_BOOTSTRAP=127.0.0.1:19092``.
"""

import argparse
import base64
import signal
import tempfile
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from gateway.testing.ports import free_port
from gateway.testing.process import Program
from tests.support.kafka_wire import answers
from tests.support.toolchain import KAFKA_SERVER_POM, jars, need
from tests.support.waiting import wait_until

VERSION: Final = "4.1.0"
_READY_S_MAX: Final = 90.0
_FORMAT_S_MAX: Final = 60.0

# What Kafka's own start script gives its server.
JVM_OPTIONS: Final = (
    "-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)  # fmt: skip
_LOG4J: Final = """\
Configuration:
  Appenders:
    Console: {name: STDOUT, PatternLayout: {pattern: "[%d] %p %m (%c)%n"}}
  Loggers:
    Root: {level: WARN, AppenderRef: [{ref: STDOUT}]}
"""


class KafkaServer:
    """One broker that is its own controller, on free ports of 127.0.0.1."""

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, object] | None = None,
        *,
        port: int | None = None,
        pom: Path = KAFKA_SERVER_POM,
    ) -> None:
        need("java", "mvn")
        self.pom = pom
        self.data_dir = data_dir
        self.kafka_port = port or free_port()
        controller = f"127.0.0.1:{free_port()}"
        self.settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.kafka_port},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.kafka_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": data_dir / "logs",
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 100,
            **(settings or {}),
        }
        self.program: Program | None = None

    @property
    def bootstrap(self) -> str:
        """Bootstrap address for clients."""
        return f"127.0.0.1:{self.kafka_port}"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self.program is not None
        return self.program.pid

    def __enter__(self) -> Self:
        self.prepare()
        self.launch()
        wait_until(lambda: answers(self.kafka_port), within_s=_READY_S_MAX, what="Kafka is up")
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def prepare(self) -> None:
        """Write the configuration and format the data directory."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        lines = [f"{key}={value}" for key, value in self.settings.items()]
        self._properties.write_text("\n".join(lines) + "\n")
        (self.data_dir / "log4j2.yaml").write_text(_LOG4J)
        # A leading "-" would be taken for an option.
        cluster_id = "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        command = self._java("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c")
        Program([*command, self._properties]).finish(within_s=_FORMAT_S_MAX)

    def launch(self) -> Program:
        """Start it and return at once."""
        self.program = Program([*self._java("kafka.Kafka", jvm=JVM_OPTIONS), self._properties])
        return self.program

    def stop(self) -> None:
        """End it: its data is thrown away, so it need not close it."""
        if self.program is not None:
            self.program.kill()

    @property
    def _properties(self) -> Path:
        return self.data_dir / "server.properties"

    def _java(self, *arguments: str, jvm: tuple[str, ...] = ()) -> list[str]:
        log4j = f"-Dlog4j2.configurationFile={self.data_dir / 'log4j2.yaml'}"
        return ["java", *jvm, log4j, "-cp", f"{jars(self.pom)}/*", *arguments]


def main() -> None:
    """Run a broker in the foreground."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=19_092)
    port = parser.parse_args().port
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with (
        tempfile.TemporaryDirectory(prefix="kafka-") as folder,
        KafkaServer(Path(folder), port=port) as server,
    ):
        print(f"Apache Kafka {VERSION} at {server.bootstrap}", flush=True)
        stop.wait()


if __name__ == "__main__":
    main()
