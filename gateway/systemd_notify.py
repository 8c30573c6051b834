"""Notifications to systemd, or another supervisor with its protocol (sd_notify(3)).

A service of ``Type=notify`` counts as started when its process has sent ``READY=1``, and one with
``WatchdogSec=`` is killed and started again when ``WATCHDOG=1`` stays away. The event loop sends
that itself, so a loop that is stuck falls silent.
"""

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import structlog

_STATE_S_MAX: Final = 1.0  # a lost READY=1 would end in a kill; systemd's socket is seldom full
_PINGS_PER_WATCHDOG: Final = 2  # as sd_watchdog_enabled(3) advises

log = structlog.get_logger()


class SystemdNotify:
    """States of this process, sent as datagrams; without a supervisor it sends nothing.

    ``path`` is a Unix socket's, ``@`` in front stands for the abstract namespace.
    ``watchdog_us`` is the time without ``WATCHDOG=1`` after which the supervisor acts; 0: no limit.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, path: str, watchdog_us: int) -> None:
        self._loop = loop
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self._ping_s = watchdog_us / 1_000_000 / _PINGS_PER_WATCHDOG
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def of(
        cls, loop: asyncio.AbstractEventLoop, environment: Mapping[str, str]
    ) -> "SystemdNotify":
        """Read ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID``."""
        watchdog_us = environment.get("WATCHDOG_USEC", "")
        is_for_us = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        return cls(
            loop,
            environment.get("NOTIFY_SOCKET", ""),
            int(watchdog_us) if is_for_us and watchdog_us.isdecimal() else 0,
        )

    def ready(self) -> None:
        """Report that the listeners listen, and begin with the watchdog's pings."""
        self._report("READY=1\nSTATUS=Serving")
        if self._address and self._ping_s:
            self._ping()

    def stopping(self) -> None:
        """Report that a stop has begun. The pings go on: a drain may take longer than one."""
        self._report("STOPPING=1\nSTATUS=Draining")

    def close(self) -> None:
        """End the pings."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ping(self) -> None:
        self._timer = self._loop.call_later(self._ping_s, self._ping)
        with suppress(OSError):  # the next one comes in time
            self._send("WATCHDOG=1", wait_s=0)

    def _report(self, state: str) -> None:
        if not self._address:
            return
        try:
            self._send(state, wait_s=_STATE_S_MAX)
        except OSError as error:
            log.warning("the supervisor cannot be notified", error=str(error))

    def _send(self, state: str, *, wait_s: float) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
            connection.settimeout(wait_s)
            connection.sendto(state.encode(), self._address)
