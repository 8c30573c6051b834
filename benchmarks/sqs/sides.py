"""The sides of an SQS comparison: ours at one or two flush policies, ElasticMQ and moto."""

import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from benchmarks.clients.sqs_wire import ANY_KEY, ask, make_queue
from benchmarks.report import Sample
from benchmarks.sides import OURS, client, temporary_folder
from tests.support.sqs_gateway import SqsGateway
from tests.support.sqs_peers import elasticmq, moto
from tests.support.toolchain import ROOT, ToolMissing, need

ELASTICMQ: Final = "elasticmq"
MOTO: Final = "moto"
GROUP: Final = "flush=group"
NEVER: Final = "flush=never"
IN_MEMORY: Final = "in memory, no signatures"


_PEERS: Final = ((ELASTICMQ, elasticmq),)


class SqsServer(Protocol):
    """A process that speaks SQS."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...


@dataclass(frozen=True)
class SqsSide:
    """A running server and the words for it in the table."""

    name: str
    policy: str
    server: SqsServer
    port: int
    key: str = ANY_KEY

    def new_queue(self, **attributes: str) -> str:
        """Return the URL of a new queue of its own."""
        return make_queue(self.port, self.key, f"bench-{uuid.uuid4().hex[:8]}", **attributes)

    def ready(self, url: str) -> int:
        """Return how many messages of a queue can be received."""
        asked = {"QueueUrl": url, "AttributeNames": ["ApproximateNumberOfMessages"]}
        found = ask(self.port, self.key, "GetQueueAttributes", asked)
        return int(found["Attributes"]["ApproximateNumberOfMessages"])


@contextmanager
def gateway(
    folder: Path,
    flush: str,
    settings: Mapping[str, object] | None = None,
    *,
    name: str = OURS,
    checkout: Path = ROOT,
) -> Iterator[SqsSide]:
    """Start ours, or the build of another checkout, with one access key."""
    new = SqsGateway(
        folder,
        {
            "log.level": "warning",
            "storage.flush": flush,
            "adapters.sqs.anonymous": "never",
            "adapters.sqs.connections_max": 20_000,
            "adapters.sqs.connections_per_ip_max": 20_000,
            **(settings or {}),
        },
    )
    new.checkout = checkout
    with new as server:
        made = server.with_key("bench")
        key = f"{made.key_id}:{made.secret}"
        yield SqsSide(name, f"flush={flush}", server, server.sqs_port, key)


@contextmanager
def all_sides(
    *, policies: Sequence[str] = ("group", "never"), with_moto: bool = True
) -> Iterator[list[SqsSide]]:
    """Start each side on empty data; all of them run at once, and are used in turn."""
    try:
        need("java", "mvn")
    except ToolMissing as error:
        sys.exit(f"{error}; no figure without its peer")
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        found = [stack.enter_context(gateway(folder / name, name)) for name in policies]
        for name, start in (*_PEERS, *([(MOTO, moto)] if with_moto else [])):
            place = folder / name
            place.mkdir()
            peer = stack.enter_context(start(place))
            port = int(peer.url.rsplit(":", 1)[1])
            found.append(SqsSide(name, IN_MEMORY, peer.program, port))
        yield found


def client_sample(side: SqsSide, module: str, *arguments: object) -> Sample:
    """Run a client once: its rate, the server's CPU time and the client's share of a CPU."""
    found: dict[str, Any] = client(
        module, "--port", side.port, "--pid", side.server.pid, "--key", side.key, *arguments
    )
    return Sample(
        found["rate"],
        {
            "server CPU us/msg": found["server_cpu_s"] / max(found["messages"], 1) * 1e6,
            "client CPU share": found["client_cpu"],
        },
    )
