"""The SQS endpoint under test: a gateway of this test process, or a peer.

``HEADGATE_SQS_TARGET=moto`` or ``=elasticmq`` turns the suites on those; what is green there asks
for what Amazon documents and not for what we happen to do. ``OWN`` marks what only a gateway has,
``LACKS`` says what the peers do not do, or do otherwise than Amazon's service.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.interop.sqs.programs.client_api import Endpoint
from tests.support.sqs_gateway import SqsGateway
from tests.support.sqs_peers import Peer, elasticmq, moto

NAME: Final = os.environ.get("HEADGATE_SQS_TARGET", "headgate")
IS_OURS: Final = NAME == "headgate"
OWN: Final = pytest.mark.skipif(not IS_OURS, reason="what only a gateway has")

# By step, or by client: what a peer does not do, or does otherwise than Amazon's service.
_NO_FAIRNESS: Final = "no fair queues"
_NO_SYSTEM_DIGEST: Final = "no MD5OfMessageSystemAttributes"
_NO_NAME_BAN: Final = "the name of a deleted queue is free at once"
_HANDLE_GONE: Final = "to delete what is gone is an error"
_NO_SCOPE: Final = "DeduplicationScope is not acted on"
LACKS: Final[dict[str, dict[str, str]]] = {
    "headgate": {},
    "moto": {
        "query-get": "no actions by GET",
        "dead letters": "a dead letter does not name its source",
        "fifo dead letters": "a dead letter does not name its source",
        "redrive": "no move tasks",
        "batches": "characters outside XML 1.0 are let in",
        "system attributes": _NO_SYSTEM_DIGEST,
        "settled twice": _HANDLE_GONE,
        "deleted queue": _NO_NAME_BAN,
        "fifo": "sequence numbers are random",
        "deduplication": "a double has an id of its own; forgotten when the first is deleted",
        "group scope": _NO_SCOPE,
        "receive attempts": "ReceiveRequestAttemptId is not acted on",
        "fair queue": _NO_FAIRNESS,
    },
    "elasticmq": {
        "query": "errors have another Type; a carriage return in XML is not escaped",
        "query-get": "errors have another Type; a carriage return in XML is not escaped",
        "deleted queue": _NO_NAME_BAN + "; errors without x-amzn-query-error",
        "batches": "InvalidMessageContents has another name",
        "message attributes": "no names by prefix (custom.*)",
        "system attributes": _NO_SYSTEM_DIGEST,
        "one mebibyte": "the refusals have other names",
        "settled twice": _HANDLE_GONE,
        "purge": "twice within a minute is let through",
        "queue attributes": "no MaximumMessageSize, no pages of ListQueues",
        "group scope": _NO_SCOPE,
        "fifo refusals": "a name without .fifo is refused by another error",
        "fair queue": _NO_FAIRNESS,
    },
}
_PEERS: Final = {"moto": moto, "elasticmq": elasticmq}


@dataclass(frozen=True)
class Target:
    """Address for clients. A peer has only the endpoint and the account."""

    endpoint: Endpoint
    account: str
    gateway: SqsGateway | None = None


@contextlib.contextmanager
def running_target(folder: Path) -> Iterator[Target]:
    """Run what ``HEADGATE_SQS_TARGET`` names until the block ends."""
    if IS_OURS:
        with SqsGateway(folder / "data") as gateway:
            yield Target(gateway.endpoint, gateway.account, gateway)
        return
    with _PEERS[NAME](folder) as peer:
        yield _target_of(peer)


def _target_of(peer: Peer) -> Target:
    return Target(Endpoint(peer.url), peer.account)


def what_the_peer_lacks(name: str) -> str:
    """Return why the target, being a peer, does not do this as Amazon does; or nothing."""
    return LACKS[NAME].get(name, "")


def skip_what_the_peer_lacks(*names: str) -> None:
    """Skip a test of steps or a client that the target, a peer, does not serve right."""
    for name in names:
        if reason := what_the_peer_lacks(name):
            pytest.skip(f"{NAME}: {name}: {reason}")
