"""Servers where everybody logs in: ours, its loop watched, Mosquitto and Apache Kafka."""

import struct
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.mqtt.mosquitto import Mosquitto
from benchmarks.watched_gateway import PLACE, TURN
from tests.security.gateway_with_users import ADMINISTRATOR, PASSWORD, GatewayWithUsers
from tests.security.well_behaved_clients import NAME
from tests.support.hostile import kafka
from tests.support.hostile.users import User
from tests.support.kafka_server import KafkaServer
from tests.support.kafka_wire import METADATA, Connection, batch, text
from tests.support.waiting import wait_until

USER: Final = User("ada", PASSWORD, "KEYOFADA")
USERS: Final = {ADMINISTRATOR: PASSWORD, USER.name: PASSWORD}
TOPICS: Final = (NAME, kafka.TOPIC)
_MADE_S_MAX: Final = 60.0
_OURS: Final = {
    "auth.required": "true",
    "auth.default": "allow",
    "auth.sha256_iterations": 4_096,  # users are made by the thousand
    "auth.sha512_iterations": 4_096,
    "adapters.sqs.deleted_name_s": 0,
    "adapters.sqs.purge_s": 0,
    "topic_defaults.partitions_max": 2_000,
    "log.level": "error",
}


class WatchedGuarded(GatewayWithUsers):
    """A gateway with users that says how long the turns of its loop are."""

    module: ClassVar[str] = "benchmarks.watched_gateway"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.turns = folder / "turns"
        super().__init__(folder / "data", TOPICS, _OURS)
        self.env[PLACE] = str(self.turns)
        self.forget_turns()

    def forget_turns(self) -> None:
        """Let the longest turn begin anew."""
        mode = "r+b" if self.turns.exists() else "wb"
        with self.turns.open(mode, buffering=0) as file:
            file.write(bytes(TURN.size))

    def longest_turn_ms(self) -> float:
        """Return the processor time of the longest turn since then."""
        thread_s, _ = TURN.unpack(self.turns.read_bytes())
        return float(thread_s) * 1_000


class GuardedMosquitto(Mosquitto):
    """Mosquitto with a password file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, users=USERS)


class GuardedKafka(KafkaServer):
    """Kafka with SASL PLAIN."""

    def __init__(self, folder: Path) -> None:
        users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
        super().__init__(
            folder,
            {
                "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
                "inter.broker.listener.name": "PLAINTEXT",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.plaintext.plain.sasl.jaas.config": (
                    "org.apache.kafka.common.security.plain.PlainLoginModule required "
                    f'username="{ADMINISTRATOR}" password="{PASSWORD}" {users};'
                ),
            },
        )

    def kafka(self, who: str) -> Connection:
        """Open a connection of somebody's; the topics are there then."""
        connection = Connection(self.kafka_port)
        for frame in kafka.login(who, PASSWORD):
            connection.socket.sendall(frame)
            assert connection.read()[4:6] == b"\0\0", "not logged in"
        names = struct.pack(">i", len(TOPICS)) + b"".join(map(text, TOPICS))
        connection.call(METADATA, 4, names + b"\1")
        wait_until(
            lambda: all(connection.produce(one, 0, batch([b""]))[0] == 0 for one in TOPICS),
            within_s=_MADE_S_MAX,
            what="topics are made",
        )
        return connection
