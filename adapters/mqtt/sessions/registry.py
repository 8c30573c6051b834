"""Registry of sessions: the connected ones, and the disconnected ones with their deadlines.

A session that outlives its connection is stored before CONNACK is sent. Deadlines count by the
monotonic clock while the node runs; across a restart, by the wall clock.
"""

import asyncio
import heapq
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

import structlog

from adapters.mqtt.inflight.open_identifiers import OpenIdentifiers
from adapters.mqtt.ports import SessionConnection
from adapters.mqtt.publishing.wills import Wills, delay_s
from adapters.mqtt.sessions.client_session import ClientSession
from adapters.mqtt.sessions.session_context import SessionContext
from adapters.mqtt.sessions.store import state_key
from adapters.mqtt.wire import Connect
from gateway.errors import GatewayError, Overloaded, StorageUnavailable

NEVER_S: Final = 0xFFFFFFFF
SWEEP_S: Final = 1.0
CHECKPOINTS_PER_TURN_MAX: Final = 1_000
SWEPT_PER_TURN_MAX: Final = 1_000
LAG_RECORDS_MAX: Final = 100_000  # a stored position is at most so far behind the real one
_STALE_ROOM: Final = 64  # deadlines that do not hold any more, beside as many as do

NewIdentifiers = Callable[[str], OpenIdentifiers]
OnOpen = Callable[[ClientSession | None, bool, GatewayError | None], None]

log = structlog.get_logger()


class Sessions:
    """All sessions by client identifier."""

    def __init__(
        self, context: SessionContext, wills: Wills, new_identifiers: NewIdentifiers
    ) -> None:
        """``new_identifiers`` returns those of a client's new session."""
        self._new_identifiers = new_identifiers
        self._context = context
        self._wills = wills
        self._sessions: dict[str, ClientSession] = {}
        self._deadlines: list[tuple[int, str]] = []
        self._loop = asyncio.get_running_loop()
        self._checkpoint: asyncio.TimerHandle | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._stored_at: dict[int, int] = {}
        self.on_end: Callable[[ClientSession], None] | None = None
        self.connected = 0
        self.connected_max = 0
        self.expired = 0

    # --- start and stop

    def start(self) -> None:
        """Begin checkpoints and the sweep; the stored sessions have been added."""
        self._tick_checkpoint()
        self._tick_sweep()

    def add(self, restored: Mapping[str, ClientSession]) -> None:
        """Add stored sessions; all clients count as disconnected until they connect."""
        self._sessions.update(restored)
        now_unix_ms = self._context.clock.unix_ms()
        for session in restored.values():
            self._restore_deadline(session, now_unix_ms)

    def suspend(self, session: ClientSession) -> None:
        """Let a kept session that leaves the node do nothing more; the caller stores it.

        Its client counts as disconnected. A will waits for the next owner, which publishes it
        unless the client comes there in time.
        """
        session.deadline_ms = 0
        self._wills.cancel(session.client_id)
        connection = session.connection
        if connection is not None:
            will = session.will if connection.with_will and session.is_attached else None
            self.connected -= 1
            self._context.detach(session)
            session.will = will
            session.disconnected_unix_ms = self._context.clock.unix_ms()
        self._context.share_shards.lanes.leave(session)
        self._context.dirty.discard(session)

    def forget(self, session: ClientSession) -> None:
        """Forget a session that has left the node; it is not over."""
        if self._sessions.get(session.client_id) is session:
            del self._sessions[session.client_id]
        self._wills.cancel(session.client_id)
        self._context.depart(session)

    def stop(self) -> None:
        """Write down where everybody stands."""
        for timer in (self._checkpoint, self._sweep):
            if timer is not None:
                timer.cancel()
        self._context.write_journals()
        self._context.store.remove_again(self._sessions.get)
        count = len(self._context.dirty)
        self._checkpoint_some(count, count)
        self._context.stop()
        self._context.store.stream.flush()

    @property
    def count(self) -> int:
        """Number of sessions of connected clients and of clients that may resume theirs."""
        return len(self._sessions)

    @property
    def subscription_count(self) -> int:
        """Subscriptions of all sessions."""
        return self._context.subscription_count

    @property
    def shared_count(self) -> int:
        """Memberships of shared subscriptions."""
        return sum(len(group.members) for group in self._context.groups.values())

    def find(self, client_id: str) -> ClientSession | None:
        """Return the session of a client identifier."""
        return self._sessions.get(client_id)

    def __iter__(self) -> Iterator[ClientSession]:
        return iter(self._sessions.values())

    # --- coming

    def open(self, connect: Connect, connection: SessionConnection, on_done: OnOpen) -> None:
        """Find or make the session of a client; ``on_done`` gets (session, session present).

        A connection that has the session now gets the reason Session taken over (MQTT-3.1.4-3).
        Errors (as the third argument): ``Overloaded``, ``StorageUnavailable``.
        """
        client_id = connect.client_id
        session = self._sessions.get(client_id)
        if session is not None and session.connection is not None:
            old = session.connection
            self._context.counters.takeovers += 1
            self.closed(
                session,
                old,
                with_will=old.with_will and session.is_attached,
                session_expiry_interval=old.session_expiry_interval,
            )
            old.taken_over()
            session = self._sessions.get(client_id)
        if session is not None and (connect.clean_start or self._is_overdue(session)):
            self._end(session)
            session = None
        is_present = session is not None
        if session is None:
            if len(self._sessions) >= self._context.config.session.count_max:
                on_done(None, False, Overloaded("session.count_max is reached"))  # noqa: FBT003
                return
            session = self._sessions[client_id] = ClientSession(client_id, self._context)
            session.inbound = self._new_identifiers(client_id)
        else:
            self._wills.cancel(client_id)
        session.username = connect.username
        session.will = connect.will
        was_kept = session.is_kept
        session.expiry_s = connect.session_expiry_interval
        session.disconnected_unix_ms = 0
        session.deadline_ms = 0
        session.connection, session.host = connection, connection.peer_host
        self.connected += 1
        self.connected_max = max(self.connected_max, self.connected)
        if session.is_kept or was_kept:
            done = partial(self._opened, session, connection, on_done, is_present=is_present)
            self._context.store.put_state(session, done)
        else:
            on_done(session, is_present, None)

    def _is_overdue(self, session: ClientSession) -> bool:
        """Whether its time is over, and only the sweep has not come by."""
        deadline_ms = session.deadline_ms
        is_bounded = deadline_ms and session.expiry_s != NEVER_S
        return bool(is_bounded) and deadline_ms <= self._context.clock.monotonic_ms()

    def _opened(
        self,
        session: ClientSession,
        connection: SessionConnection,
        on_done: OnOpen,
        error: StorageUnavailable | None,
        *,
        is_present: bool,
    ) -> None:
        if session.connection is not connection:
            return
        if error is not None:
            self.closed(session, connection, with_will=False, session_expiry_interval=None)
            on_done(None, is_present, error)
        else:
            on_done(session, is_present, None)

    # --- going

    def closed(
        self,
        session: ClientSession,
        connection: SessionConnection,
        *,
        with_will: bool,
        session_expiry_interval: int | None,
    ) -> None:
        """A connection has ended; later calls for it do nothing.

        ``session_expiry_interval`` is DISCONNECT's, None when it said nothing.
        """
        if session.connection is not connection:
            return
        if session_expiry_interval is not None:
            session.expiry_s = session_expiry_interval
        self.connected -= 1
        self._context.detach(session)
        will, session.will = session.will, None
        if will is not None and with_will:
            if session.is_kept:
                session.will = will  # so that it is written down until it is published
            self._wills.schedule(session.client_id, will, delay_s(will, session.expiry_s))
        if not session.is_kept:
            self._end(session)
            return
        clock = self._context.clock
        session.disconnected_unix_ms = clock.unix_ms()
        self._context.store.put_state(session)
        self._set_deadline(session, clock.monotonic_ms() + session.expiry_s * 1_000)

    def _set_deadline(self, session: ClientSession, due_ms: int) -> None:
        session.deadline_ms = due_ms
        if session.expiry_s == NEVER_S:
            return
        heapq.heappush(self._deadlines, (due_ms, session.client_id))
        if len(self._deadlines) > 2 * len(self._sessions) + _STALE_ROOM:
            # A client that comes and goes leaves an entry each time.
            self._deadlines = [
                (one.deadline_ms, one.client_id)
                for one in self._sessions.values()
                if one.deadline_ms and one.expiry_s != NEVER_S
            ]
            heapq.heapify(self._deadlines)

    def _end(self, session: ClientSession) -> None:
        """The session is over; a will that waits for its end goes now (MQTT-3.1.2-8)."""
        session.will = None  # this session is not stored any more
        self._wills.end(session.client_id)
        self._context.write_journals()
        if self._is_stored(session):
            self._context.store.remove(session)
        self._context.end(session)
        self._context.write_journals()  # what it gives back, in one append with its end
        if self.on_end is not None:
            self.on_end(session)
        if self._sessions.get(session.client_id) is session:
            del self._sessions[session.client_id]

    def _is_stored(self, session: ClientSession) -> bool:
        return state_key(session.client_id) in self._context.store.stream.values

    # --- deadlines and checkpoints

    def checkpoint(self) -> None:
        """Store the acknowledgements and read positions of sessions since the last time."""
        self._context.write_journals()  # before the positions that have passed them
        self._context.endings.sweep()
        self._context.store.remove_again(self._sessions.get)
        self._checkpoint_some(len(self._context.dirty), CHECKPOINTS_PER_TURN_MAX)

    def _checkpoint_some(self, count: int, turn_max: int) -> None:
        """Store ``count`` sessions over several turns; a refused one is stored the next time."""
        dirty = self._context.dirty
        for _ in range(min(len(dirty), count, turn_max)):
            session = dirty.pop()
            if session.is_kept and self._sessions.get(session.client_id) is session:
                self._context.store.put_state(session)
        if count > turn_max:
            self._loop.call_soon(self._checkpoint_some, count - turn_max, turn_max)
            return
        groups, self._context.dirty_groups = self._context.dirty_groups, set()
        for group in groups:
            if group.is_kept:
                positions = self._context.positions_of_group(group)
                self._context.store.put_group(group, positions)
        self._refresh_old_positions()

    def _refresh_old_positions(self) -> None:
        """Bound how far back a node that was killed reads for sessions without traffic."""
        live = self._context.feeds.live_offsets()
        moved = any(
            offset - self._stored_at.get(partition_id, 0) > LAG_RECORDS_MAX
            for partition_id, offset in live.items()
        )
        if not moved:
            return
        self._stored_at = live
        for session in self._sessions.values():
            if session.connection is not None and session.is_kept and session.reads_log:
                self._context.dirty.add(session)
        self._context.dirty_groups.update(
            group for group in self._context.groups.values() if group.online
        )

    def _tick_checkpoint(self) -> None:
        seconds = self._context.config.session.checkpoint_ms / 1_000
        self._checkpoint = self._loop.call_later(seconds, self._tick_checkpoint)
        self.checkpoint()

    def _tick_sweep(self) -> None:
        self._sweep = self._loop.call_later(SWEEP_S, self._tick_sweep)
        self.sweep(self._context.clock.monotonic_ms())
        try:
            self._context.retained.sweep(_ignore)
        except GatewayError as error:
            log.info("expired retained messages stay for now", error=str(error))

    def sweep(self, now_ms: int) -> None:
        """End the sessions whose time is over (MQTT 5.0 section 3.1.2.11.2)."""
        for _ in range(SWEPT_PER_TURN_MAX):
            if not (self._deadlines and self._deadlines[0][0] <= now_ms):
                return
            due_ms, client_id = heapq.heappop(self._deadlines)
            session = self._sessions.get(client_id)
            if session is not None and session.deadline_ms == due_ms:
                self.expired += 1
                self._end(session)
        self._loop.call_soon(self.sweep, now_ms)

    # --- restoring

    def _restore_deadline(self, session: ClientSession, now_unix_ms: int) -> None:
        """A client that was connected when the node ended is away since now."""
        clock = self._context.clock
        was_connected = session.disconnected_unix_ms == 0
        if was_connected:
            session.disconnected_unix_ms = now_unix_ms
        away_ms = max(now_unix_ms - session.disconnected_unix_ms, 0)
        left_ms = max(session.expiry_s * 1_000 - away_ms, 0)
        self._set_deadline(session, clock.monotonic_ms() + left_ms)
        if session.will is not None:
            waited_s = away_ms // 1_000
            delay = max(delay_s(session.will, session.expiry_s) - waited_s, 1)
            self._wills.schedule(session.client_id, session.will, delay)
        if was_connected:
            self._context.dirty.add(session)


def _ignore(_error: StorageUnavailable | None) -> None:
    """Ignore an error: the next sweep tries again."""
