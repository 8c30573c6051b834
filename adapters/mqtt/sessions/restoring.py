"""Sessions as they were written down, made again when the node starts.

A record without its session is of one that is over, and is removed: a client of that name that
comes later is not to find it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import structlog

from adapters.mqtt.inflight.outbox import RETAINED, Inflight, Outbox
from adapters.mqtt.sessions.client_session import ClientSession
from adapters.mqtt.sessions.journal import decode_runs
from adapters.mqtt.sessions.session_context import SessionContext
from adapters.mqtt.sessions.state_records import decode_group, decode_state
from adapters.mqtt.sessions.store import (
    ENDED_KEY,
    FILTER_KEY,
    GROUP_KEY,
    RUN_KEY,
    STATE_KEY,
    parse_key,
)

log = structlog.get_logger()


async def restore(context: SessionContext, sessions: dict[str, ClientSession]) -> None:
    """Read stored sessions into ``sessions``, before any client connects.

    Errors: as ``InternalStream.load``, ``QueueJournal.load``.
    """
    await context.store.stream.load()
    await _Restoring(context, sessions).run()


class _Restoring:
    def __init__(self, context: SessionContext, sessions: dict[str, ClientSession]) -> None:
        self._context = context
        self._sessions = sessions
        self._values = context.store.stream.values
        self._orphans: list[bytes] = []

    async def run(self) -> None:
        context, values = self._context, self._values
        keys = defaultdict(list)
        for key in values:
            keys[key[:1]].append(key)
        for key in keys[STATE_KEY]:
            self._restore_state(parse_key(key)[0], values[key])
        for session, rest, value in self._owned(keys[FILTER_KEY]):
            context.subscribing.restore(session, rest.decode(), value)
        for session, rest, value in self._owned(sorted(keys[ENDED_KEY])):  # the oldest first
            context.subscribing.restore_ended(session, int.from_bytes(rest, "big"), value)
        for key in keys[GROUP_KEY]:
            name, topic_filter = parse_key(key)
            context.restore_group(name, topic_filter.decode(), decode_group(values[key]))
        for session, rest, value in self._owned(sorted(keys[RUN_KEY])):  # in order
            _restore_runs(session, int.from_bytes(rest, "big"), value)
        for session in self._sessions.values():
            session.outbox.restored()
        await context.lanes.load(self._sessions.values())
        if self._orphans:
            log.info("records of sessions that are over are removed", count=len(self._orphans))
            context.store.remove_orphans(self._orphans)

    def _owned(self, keys: Iterable[bytes]) -> Iterator[tuple[ClientSession, bytes, bytes]]:
        """Yield (session, what follows its client in the key, value); note who has none."""
        for key in keys:
            client_id, rest = parse_key(key)
            session = self._sessions.get(client_id)
            if session is None:
                self._orphans.append(key)
            else:
                yield session, rest, self._values[key]

    def _restore_state(self, client_id: str, value: bytes) -> None:
        stored = decode_state(value)
        session = ClientSession(client_id, self._context)
        session.expiry_s = stored.expiry_s
        session.disconnected_unix_ms = stored.disconnected_unix_ms
        session.username = stored.username
        session.will = stored.will
        session.positions = stored.positions
        outbox = session.outbox = Outbox(next_seq=stored.base)
        outbox.next_seq = stored.next_seq
        outbox.done = stored.done
        outbox.received = set(stored.received)
        self._sessions[client_id] = session


def _restore_runs(session: ClientSession, first_seq: int, value: bytes) -> None:
    """Take back what was on its way; records come in order."""
    runs = decode_runs(first_seq, value)
    session.journal.restore(runs)
    for run in runs:
        _pass_position(session, run)
        if run.first_seq + run.length > session.outbox.base:
            session.outbox.restore(run)


def _pass_position(session: ClientSession, run: Inflight) -> None:
    """Move a position past a run that was sent, which a checkpoint may not have."""
    position = session.positions.get(run.partition_id, 0)
    if session.positions and run.partition_id != RETAINED and not run.group:
        end = run.first_offset + run.length
        session.positions[run.partition_id] = max(position, end)
