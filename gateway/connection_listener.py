"""Port between a connection and the listener that accepted it."""

import asyncio
from typing import Protocol, TypeVar

from gateway.admission import Admission
from gateway.config.base import ListenerConfig
from gateway.fault_log import FaultLog

C_contra = TypeVar("C_contra", contravariant=True)  # the kind of connections


class ConnectionListener(Protocol[C_contra]):
    """Port of a connection to the listener that accepted it; ``gateway.listener`` implements it.

    ``host`` and ``port`` are what it listens on, ``now_s`` is the time of the last sweep,
    ``socket_writes`` counts writes to transports.
    """

    name: str
    host: str
    port: int
    config: ListenerConfig
    admission: Admission
    loop: asyncio.AbstractEventLoop
    now_s: float
    receive_buffer: memoryview
    fault_log: FaultLog
    socket_writes: int

    def flush_soon(self, connection: C_contra) -> None:
        """Call the connection's ``flush`` at the end of this turn of the loop."""
        ...

    def admit(self, connection: C_contra) -> bool:
        """Count a connection that is made; False when a limit is reached."""
        ...

    def forget(self, connection: C_contra) -> None:
        """Count an ended connection no more."""
        ...

    def note(self, kind: str, host: str, detail: str) -> None:
        """Count a fault of a peer, and log it at a bounded rate."""
        ...
