"""Limits shared by all listeners of a node: connections (descriptors beside files) and bytes.

Bytes kept of clients that have not logged in are counted as they arrive, in total and by address.
Small requests that arrive in one piece are hardly ever counted.
"""

import asyncio
from collections import Counter
from typing import Final, Protocol

from gateway import descriptors
from gateway.config.admission import ListenersConfig
from gateway.errors import PeerError

_RESERVE_SHARE: Final = 2  # with few descriptors the reserve is this part of them, and no more


class TooMuchBeforeLogin(PeerError):
    """Excess of bytes kept of clients that have not logged in."""


class ConnectionQuota(Protocol):
    """Limit of new connections by address; ``gateway.quotas.manager`` implements it."""

    limits_addresses: bool

    def admits_connection(self, host: str) -> bool:
        """Count a new connection; False when the address makes too many."""
        ...


class Sender(Protocol):
    """Connection, as far as its unsent bytes go."""

    transport: asyncio.Transport | None
    out_bytes: int


def unsent_bytes(sender: Sender) -> int:
    """Return the bytes of answers that a peer has not read, without kernel buffers."""
    transport = sender.transport
    return sender.out_bytes + (transport.get_write_buffer_size() if transport else 0)


class Admission:
    """Counts of all listeners. ``connections_max``: the number that descriptors allow."""

    def __init__(
        self, config: ListenersConfig | None = None, quota: ConnectionQuota | None = None
    ) -> None:
        self._quota = quota
        self.config = config = config or ListenersConfig()
        self.descriptors_max = descriptors.limit()
        reserve = min(config.descriptors_reserve, self.descriptors_max // _RESERVE_SHARE)
        self.connections_max = self.descriptors_max - reserve
        self.connections_count = 0
        self.unauthenticated_bytes = 0
        self._bytes_by_host: Counter[str] = Counter()

    def enter(self) -> bool:
        """Count one more connection; return False when descriptors would not suffice."""
        if self.connections_count >= self.connections_max:
            return False
        self.connections_count += 1
        return True

    def admits_rate(self, host: str) -> bool:
        """Count a new connection of an address; False when it makes too many a second."""
        quota = self._quota
        return quota is None or not quota.limits_addresses or quota.admits_connection(host)

    def leave(self) -> None:
        """Uncount a connection."""
        self.connections_count -= 1

    def hold(self, host: str, size_bytes: int) -> None:
        """Add kept bytes of a client that has not logged in; negative numbers release them.

        Error: ``TooMuchBeforeLogin`` when a bound is exceeded. They are counted all the same:
        the client is closed, and gives them back.
        """
        self.unauthenticated_bytes += size_bytes
        host_bytes = self._bytes_by_host[host] + size_bytes
        if host_bytes > 0:
            self._bytes_by_host[host] = host_bytes
        else:
            self._bytes_by_host.pop(host, None)
        if size_bytes <= 0:
            return
        if host_bytes > self.config.unauthenticated_bytes_per_ip_budget:
            raise TooMuchBeforeLogin("listeners.unauthenticated_bytes_per_ip_budget")
        if self.unauthenticated_bytes > self.config.unauthenticated_bytes_budget:
            raise TooMuchBeforeLogin("listeners.unauthenticated_bytes_budget")
