"""Accepted TCP connection: reading, writing, pausing and closing, for all protocols.

An adapter's connection implements ``receive_buffer`` and ``received``. Reads go into the
listener's one shared buffer unless the adapter hands out its own, so an idle connection costs no
buffer. This is the one place that catches ``Exception``: a bug met by one peer closes that peer
only.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import structlog

from gateway.connection_listener import ConnectionListener
from gateway.errors import GatewayError, PeerError
from gateway.half_close import end_output
from gateway.model import Buffer
from gateway.reserved_names import ReservedNames

log = structlog.get_logger()

WRITE_HIGH_BYTES: Final = 1024 * 1024
CLOSE_S_MAX: Final = 10.0  # what a peer gets to take its last answers
LINGER_S_MAX: Final = 2.0  # what it gets to close its side after ``close_gently``


class Connection(ReservedNames, asyncio.BufferedProtocol):
    """Accepted connection. Subclasses implement a protocol; all calls are on the loop."""

    __slots__ = (
        "_closing_s",
        "_has_ended",
        "_holds",
        "_lingers",
        "_out",
        "_said",
        "_taken_bytes",
        "_taken_s",
        "bytes_received",
        "bytes_sent",
        "connected_s",
        "frame_started_s",
        "has_greeted",
        "is_closing",
        "is_counted",
        "is_writable",
        "last_received_s",
        "listener",
        "out_bytes",
        "peer_host",
        "transport",
        "unauthenticated_bytes",
    )

    def __init__(self, listener: "ConnectionListener[Connection]") -> None:
        self.listener = listener
        self.transport: asyncio.Transport | None = None
        self.peer_host = ""
        self.connected_s = listener.now_s
        self.last_received_s = listener.now_s
        self.frame_started_s: float | None = None
        self.has_greeted = False  # one whole frame has come
        self.is_counted = False  # counted among the listener's connections
        self.unauthenticated_bytes = 0  # counted of what was read before a login
        self.is_writable = True
        self.is_closing = False
        self.bytes_received = 0
        self.bytes_sent = 0  # handed to the transport
        self.out_bytes = 0  # queued here, not yet handed to the transport
        self._holds: set[str] = set()
        self._out: deque[Buffer] = deque()
        self._said: set[str] = set()
        self._closing_s = 0.0
        self._lingers = False  # closed by us, and reading on
        self._has_ended = False  # ``closed`` was called
        self._taken_bytes = -1  # what the peer had taken at ``_taken_s``
        self._taken_s = 0.0

    # --- what a protocol implements

    def receive_buffer(self) -> memoryview:
        """Return the buffer for the next bytes: the shared one, or a large frame's own."""
        return self.listener.receive_buffer

    def received(self, size_bytes: int) -> None:
        """Take ``size_bytes`` bytes in the buffer that ``receive_buffer`` returned last."""
        raise NotImplementedError

    def is_busy(self) -> bool:
        """Say whether a request is being served, so that an idle peer is not closed."""
        return False

    def has_unsaved_work(self) -> bool:
        """Say whether the peer waits for an answer to something it sent."""
        return False

    def hurry(self) -> None:
        """Answer waiting requests: the node drains."""

    def released(self) -> None:
        """Process data that was read already, after a reason for holding reads has ended."""

    def flushed(self) -> None:
        """Go on after sent data has reached the socket, or the peer has caught up."""

    def closed(self) -> None:
        """Release the resources of the closed connection."""

    def lost(self) -> None:
        """Handle the loss of the transport, at or after ``closed``."""

    def describe(self) -> dict[str, Any]:
        """Return the fields that ``headgate clients`` shows."""
        return {
            "peer": self.peer_host,
            "connected_s": round(self.listener.now_s - self.connected_s),
            "received_bytes": self.bytes_received,
            "sent_bytes": self.bytes_sent,
        }

    # --- writing: one write per turn of the loop

    def send(self, *data: Buffer) -> None:
        """Queue bytes; all bytes queued in one turn of the loop are written at once."""
        if self.transport is None or self.is_closing:
            return
        if not self._out:
            self.listener.flush_soon(self)
        for piece in data:  # nearly always one
            self._out.append(piece)
            self.out_bytes += len(piece)

    def send_now(self, data: Buffer) -> None:
        """Send bytes without a queue, as the first of this turn; others may follow.

        (uvloop gathers what one turn writes itself, but for each piece at a higher price.)
        """
        transport = self.transport
        if self._out or not self.is_writable or transport is None or self.is_closing:
            self.send(data)
            return
        self.listener.socket_writes += 1
        self.bytes_sent += len(data)
        transport.write(data)

    def flush(self) -> None:
        """Pass queued bytes to the transport, as many as the peer keeps up with.

        The listener calls it at the end of the turn, guarded. Much at once goes in runs: TLS
        would encrypt all of it in one go, where no limit of the transport sees it.
        """
        while self._out and self.is_writable and self.transport is not None:
            if len(self._out) == 1 and self.out_bytes <= WRITE_HIGH_BYTES:
                self.write_run((self._out.popleft(),))
            elif self.out_bytes <= WRITE_HIGH_BYTES:
                self._write_all()
            else:
                self.write_run(self._next_run())
        if not self._out:
            self.flushed()

    def _next_run(self) -> list[Buffer]:
        run: list[Buffer] = []
        room_bytes = WRITE_HIGH_BYTES
        while room_bytes:
            piece = self._out[0]
            if len(piece) > room_bytes:
                view = memoryview(piece)
                run.append(view[:room_bytes])
                self._out[0] = view[room_bytes:]
                break
            run.append(self._out.popleft())
            room_bytes -= len(piece)
        return run

    def _write_all(self) -> None:
        out, self._out = self._out, deque()
        self.write_run(out)

    def write_run(self, run: Sequence[Buffer]) -> None:
        """Pass queued bytes to the transport; a protocol with frames wraps them here."""
        assert self.transport is not None
        self.listener.socket_writes += 1
        if len(run) == 1:
            size_bytes = len(run[0])
            self.transport.write(run[0])
        else:
            size_bytes = sum(map(len, run))
            self.transport.writelines(run)
        self.bytes_sent += size_bytes
        self.out_bytes -= size_bytes

    # --- flow control

    def hold_reads(self, reason: str) -> None:
        """Stop reading until this reason (and every other) is released."""
        if not self._holds and self.transport is not None:
            self.transport.pause_reading()
        self._holds.add(reason)

    def release_reads(self, reason: str) -> None:
        """Release one reason for holding reads."""
        if reason in self._holds:
            self._holds.discard(reason)
            if not self._holds and self.transport is not None:
                self.last_received_s = self.listener.now_s
                if self.frame_started_s is not None:  # while held, it was not the peer's turn
                    self.frame_started_s = self.listener.now_s
                self.transport.resume_reading()
            self.guard(self.released)

    def is_held_but_for(self, *reasons: str) -> bool:
        """Say whether reads are held for any other reason."""
        return bool(self._holds) and not self._holds.issubset(reasons)

    def keep_before_login(self, size_bytes: int) -> None:
        """Set the bytes kept of the peer before its login; 0 after it.

        Error: ``TooMuchBeforeLogin``, upon which the peer is closed.
        """
        if added_bytes := size_bytes - self.unauthenticated_bytes:
            self.unauthenticated_bytes = size_bytes
            self.listener.admission.hold(self.peer_host, added_bytes)

    # --- ending

    def fail(self, error: GatewayError) -> None:
        """Close because of a fault of the peer; count and log it."""
        self.note(type(error).__name__, str(error))
        self.close()

    def note(self, kind: str, message: str) -> None:
        """Count a fault of the peer, and log it the first time on this connection."""
        if kind in self._said:
            self.listener.fault_log.count(kind)
            return
        self._said.add(kind)
        self.listener.note(kind, self.peer_host, message)

    def close(self) -> None:
        """Write queued bytes, then close; a peer that does not read them is cut off."""
        if self.transport is None:
            return
        if self.is_closing:
            if self._lingers:
                self._lingers = False
                self.transport.close()
            return
        self.is_closing = True
        self._closing_s = self.listener.now_s
        if self._out:
            self._write_all()
        self.transport.close()

    def close_gently(self) -> None:
        """Write queued bytes, then close the sending side, and ignore further input.

        A close with unread bytes is a reset, and a reset takes the last answer away from a peer
        that has not read it. It has ``LINGER_S_MAX`` to close its side. ``closed`` is called in
        the next turn; a protocol ignores what comes while ``is_closing``. TLS ends so by itself.
        """
        transport = self.transport
        if transport is None or self.is_closing:
            return
        if not transport.can_write_eof():
            self.close()
            return
        self.is_closing = self._lingers = True
        self._closing_s = self.listener.now_s
        if self._out:
            self._write_all()
        end_output(transport)
        if self._holds:
            self._holds.clear()
            transport.resume_reading()
        self.listener.loop.call_soon(self._end)

    def _end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self.guard(self.closed)

    def guard(self, work: Callable[..., None], *args: Any) -> None:  # noqa: ANN401 - passed on
        """Run ``work``; an error, the peer's or our own, closes this connection only."""
        try:
            work(*args)
        except Exception as error:  # noqa: BLE001 - see ``failed_by``
            self.failed_by(error)

    def failed_by(self, error: Exception) -> None:
        """Close because of an exception; our own bugs are logged, once a second."""
        if isinstance(error, PeerError):
            self.fail(error)
            return
        fault_log = self.listener.fault_log
        fault_log.count("bug")
        if fault_log.begins("bug", self.peer_host, repr(error)):
            log.error(
                "connection closed by a bug",
                protocol=self.listener.name,
                peer=self.peer_host,
                exc_info=error,
            )
        self.close()

    # --- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio; over TLS, the handshake is complete."""
        # uvloop's transports do not derive from asyncio's.
        transport = self.transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.peer_host = self.peer_host or (str(peer[0]) if peer else "")
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        if not self.listener.admit(self):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """See asyncio."""
        self.transport = None
        self.is_closing = True
        self._out.clear()
        self.out_bytes = 0
        self.keep_before_login(0)
        self.listener.forget(self)
        self._end()
        self.lost()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """See asyncio."""
        return self.receive_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio."""
        self.last_received_s = self.listener.now_s
        self.bytes_received += nbytes
        try:  # as ``guard``, without its call
            self.received(nbytes)
        except Exception as error:  # noqa: BLE001 - see ``failed_by``
            self.failed_by(error)

    def pause_writing(self) -> None:
        """See asyncio: stop writing until the peer has read."""
        self.is_writable = False
        self._taken_bytes, self._taken_s = -1, self.listener.now_s
        self.hold_reads("writes")

    def resume_writing(self) -> None:
        """See asyncio: go on writing."""
        self.is_writable = True
        self.guard(self.flush)
        if self.is_writable:
            self.release_reads("writes")

    def check_deadlines(self, now_s: float) -> None:
        """Close an overdue connection; abort one that does not close."""
        if self.is_closing:
            closing_s = now_s - self._closing_s
            if self._lingers and closing_s >= LINGER_S_MAX:
                self.close()
            elif self.transport is not None and closing_s > CLOSE_S_MAX:
                self.transport.abort()
            return
        reason = self.overdue(now_s)
        if reason is not None:
            self.note(reason, f"closed: {reason} is over")
            self.close()

    def stalled_s(self, now_s: float) -> float:
        """Return how long the peer has read nothing of its pending data; 0 without any."""
        if self.is_writable or self.transport is None:
            return 0.0
        taken_bytes = self.bytes_sent - self.transport.get_write_buffer_size()
        if taken_bytes != self._taken_bytes:
            self._taken_bytes, self._taken_s = taken_bytes, now_s
        return now_s - self._taken_s

    def overdue(self, now_s: float) -> str | None:
        """Return the reason to close the connection now, or None."""
        config = self.listener.config
        if self._holds:
            name = "idle_s_max" if self.has_greeted else "handshake_s_max"
            return name if self.stalled_s(now_s) > getattr(config, name) else None
        if (late := self.late(now_s)) is not None:
            return late
        if not self.is_busy() and now_s - self.last_received_s > config.idle_s_max:
            return "idle_s_max"
        return None

    def late(self, now_s: float) -> str | None:
        """Return the deadline that an incomplete request has missed, or None."""
        config = self.listener.config
        if not self.has_greeted and now_s - self.connected_s > config.handshake_s_max:
            return "handshake_s_max"
        started_s = self.frame_started_s
        if started_s is not None and now_s - started_s > config.frame_s_max:
            return "frame_s_max"
        return None
