"""The sides of an AMQP comparison: ours, and RabbitMQ with classic queues.

Both confirm a persistent message of a durable queue once it is on disk, many with one sync.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.amqp.rabbitmq import RabbitMq, find_rabbitmq
from benchmarks.report import Ratio, Row, Sample
from benchmarks.rounds import ratio_to_peer
from benchmarks.sides import OURS, client, temporary_folder
from gateway.testing.ports import free_port
from tests.support.gateway import Gateway

PEER: Final = "rabbitmq"
GROUP: Final = "flush=group"
CLASSIC: Final = "classic queues"


class AmqpGateway(Gateway):
    """A gateway with an AMQP listener beside Kafka's."""

    def __init__(self, data_dir: Path) -> None:
        self.amqp_port = free_port()
        super().__init__(
            data_dir,
            {
                "log.level": "warning",
                "storage.flush": "group",
                "adapters.amqp.bind": f"127.0.0.1:{self.amqp_port}",
                "adapters.amqp.management.enabled": "false",
            },
        )


@dataclass(frozen=True)
class AmqpSide:
    """A running broker and the words for it in the table."""

    name: str
    policy: str
    server: AmqpGateway | RabbitMq

    @property
    def port(self) -> int:
        """Port to which clients connect."""
        return self.server.amqp_port


@contextmanager
def started() -> Iterator[list[AmqpSide]]:
    """Start each side on empty data; both run at once, and are used in turn."""
    find_rabbitmq()
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        ours = stack.enter_context(AmqpGateway(folder / OURS))
        theirs = stack.enter_context(RabbitMq(folder / PEER))
        yield [AmqpSide(OURS, GROUP, ours), AmqpSide(PEER, CLASSIC, theirs)]


def client_sample(side: AmqpSide, module: str, arguments: Sequence[object]) -> Sample:
    """Run a client once: its rate, the server's CPU time and the client's share of a CPU."""
    found = client(module, "--port", side.port, "--pid", side.server.pid, *arguments)
    extra = {
        "server CPU us/msg": found["server_cpu_s"] / max(found["messages"], 1) * 1e6,
        "client CPU share": found["client_cpu"],
    }
    return Sample(found["rate"], {**extra, **found.get("extra", {})})


def ratio(rows: list[Row], bar: float, *, case: str = "", at_most: bool = False) -> Ratio:
    """Return ours by RabbitMQ's, of the rows of one case."""
    name = f"headgate ({GROUP}) / rabbitmq"
    found = ratio_to_peer(rows, GROUP, peer=PEER)
    return Ratio(f"{case}: {name}" if case else name, found, bar, at_most=at_most)
