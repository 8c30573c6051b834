"""Muting of a connection: a throttled client is not read from for a while."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

from gateway.connection_listener import ConnectionListener

QUOTA: Final = "quota"
"""Reason for which a muted connection holds reads."""


class MutedConnection(Protocol):
    """Connection, as far as it is muted."""

    listener: ConnectionListener[Any]
    is_closing: bool

    def hold_reads(self, reason: str) -> None:
        """Stop reading."""
        ...

    def release_reads(self, reason: str) -> None:
        """Read on."""
        ...

    def guard(self, work: Callable[..., None], *args: Any) -> None:  # noqa: ANN401 - passed on
        """Call ``work``; an exception closes the connection."""
        ...


class ReadMute:
    """Mute of one connection."""

    __slots__ = ("_timer",)

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, connection: MutedConnection, wait_ms: int) -> None:
        """Read nothing for so long, or longer where it is muted for longer already.

        A connection that closes is not kept for that time.
        """
        if connection.is_closing:
            return
        loop = connection.listener.loop
        until_s = loop.time() + wait_ms / 1000
        if self._timer is not None:
            if self._timer.when() >= until_s:
                return
            self._timer.cancel()
        self._timer = loop.call_at(until_s, connection.guard, self._end, connection)
        connection.hold_reads(QUOTA)

    def _end(self, connection: MutedConnection) -> None:
        self._timer = None
        connection.release_reads(QUOTA)

    def cancel(self) -> None:
        """End without reading on: the connection has closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
