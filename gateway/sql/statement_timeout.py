"""Timeout of SQL statements: another thread cuts the connection.

A driver waits for an answer without end, and TCP only finds out that the other machine is gone:
a server that is stopped, or whose disk hangs, acknowledges bytes all the same. What was cut fails
as if the server had closed the connection.
"""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from sqlalchemy import Engine, event

from gateway.errors import StorageUnavailable

_MS_PER_S: Final = 1_000


class Closing(StorageUnavailable):
    """Database that is being closed: no statement starts any more."""


class ConnectionTimeout:
    """Timeout for an engine with one connection, used by one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._way: _ConnectionCutter | None = None  # to the connection that there is
        self._timer: threading.Timer | None = None
        self._ms_max = 0
        self._is_shut = False
        self.is_over = False

    def follow(self, engine: Engine) -> None:
        """Follow an engine's connections, from their first statement on."""
        event.listen(engine, "connect", self._connected, insert=True)
        event.listen(engine, "close", self._closed)

    @contextmanager
    def limited(self, ms_max: int | None) -> Iterator[None]:
        """Cut the connection if the context takes longer than the timeout; None is no limit.

        ``is_over`` says that it was cut, until the next one begins. Errors: ``Closing`` after
        ``shut``.
        """
        with self._lock:
            if self._is_shut:
                raise Closing("the database is being closed")
            self.is_over = False
        self._start(ms_max or 0)
        try:
            yield
        finally:
            self._start(0)

    def renew(self) -> None:
        """Restart the timeout."""
        self._start(self._ms_max)

    def shut(self) -> None:
        """Cut the running statement and refuse new ones. In any thread."""
        with self._lock:
            self._is_shut = True
            self._cut()

    def leave(self) -> None:
        """Release the connection: the engine has closed it, or could not open it."""
        with self._lock:
            if self._way is not None:
                self._way.close()
                self._way = None

    def _start(self, ms_max: int) -> None:
        """Start the timer, or end it with 0."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._ms_max = ms_max
            if ms_max:
                self._timer = threading.Timer(ms_max / _MS_PER_S, self._expire)
                self._timer.daemon = True
                self._timer.start()

    def _expire(self) -> None:
        with self._lock:
            if self._timer is threading.current_thread():  # or it ended at this moment
                self.is_over = True
                self._cut()

    def _cut(self) -> None:
        if self._way is not None:
            self._way.cut()

    def _connected(self, connection: Any, _record: object) -> None:  # noqa: ANN401 - DBAPI's
        self.leave()
        way = _ConnectionCutter(connection)
        with self._lock:
            self._way = way
            if self.is_over or self._is_shut:  # to connect took so long
                way.cut()

    def _closed(self, _connection: object, _record: object) -> None:
        self.leave()


class _ConnectionCutter:
    """Access to the connection of a waiting thread, from any thread."""

    def __init__(self, connection: Any) -> None:  # noqa: ANN401 - DBAPI's, untyped
        self._interrupt = getattr(connection, "interrupt", None)
        self._socket: socket.socket | None = None
        fileno = getattr(connection, "fileno", None)
        if fileno is not None:
            # A descriptor of our own: the driver's may be closed, and another file's, at any time.
            self._socket = socket.socket(fileno=os.dup(fileno()))

    def cut(self) -> None:
        """End the statement under way."""
        if self._interrupt is not None:  # SQLite, which waits for nobody but its disk
            self._interrupt()
        if self._socket is not None:
            with suppress(OSError):  # it has gone already
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Release the connection."""
        if self._socket is not None:
            self._socket.close()
