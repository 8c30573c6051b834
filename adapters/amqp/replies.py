"""Addresses of direct reply-to, by which requesters get answers without a queue.

A requester's channel has one address, as ``amq.rabbitmq.reply-to.Kp7...``. An answer published to
it by the default exchange goes to the channel's socket, and never into a log: at most once.
https://www.rabbitmq.com/docs/direct-reply-to
"""

import base64
import os
from collections.abc import Sequence
from typing import Final, Protocol

REPLY_TO: Final = "amq.rabbitmq.reply-to"
REPLY_PREFIX: Final = REPLY_TO + "."
_RANDOM_BYTES: Final = 18


def new_address() -> str:
    """Return an address that nobody guesses: who has it may answer."""
    return REPLY_PREFIX + base64.urlsafe_b64encode(os.urandom(_RANDOM_BYTES)).decode("ascii")


class Requester(Protocol):
    """Receiver of answers."""

    def on_replies(self, routing_key: str, properties: bytes, bodies: Sequence[bytes]) -> None:
        """Send answers to the client; those that it does not keep up with are dropped."""
        ...


class Requesters:
    """Requesters of the node by vhost and address: one for each channel at most."""

    def __init__(self) -> None:
        self._by_address: dict[tuple[str, str], Requester] = {}

    def __len__(self) -> int:
        return len(self._by_address)

    def add(self, namespace: str, address: str, requester: Requester) -> None:
        """Keep the requester of a new address."""
        self._by_address[namespace, address] = requester

    def remove(self, namespace: str, address: str) -> None:
        """Forget an address; answers to it are unroutable from now on."""
        self._by_address.pop((namespace, address), None)

    def find(self, namespace: str, address: str) -> Requester | None:
        """Return the requester of an address, if it is still there."""
        return self._by_address.get((namespace, address))

    def has(self, namespace: str, name: str) -> bool:
        """Say whether a name is that of a live requester, or the name that stands for any."""
        return name == REPLY_TO or (namespace, name) in self._by_address
