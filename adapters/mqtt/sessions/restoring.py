"""Sessions as they were written down, made again when their shard is opened.

A record without its session is of one that is over, and is removed: a client of that name that
comes later is not to find it.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from typing import Final, TypeVar

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

RECORDS_PER_TURN: Final = 1_000

_One = TypeVar("_One")

log = structlog.get_logger()


async def restore(context: SessionContext, shards: Collection[int]) -> dict[str, ClientSession]:
    """Read the stored sessions of some shards, by client; none of the clients is connected.

    Shared subscriptions are restored too. Errors: as ``ShardedStream.load_shards``.
    """
    await context.store.stream.load_shards(shards)
    restoring = _Restoring(context, dict(context.store.stream.items_of(shards)))
    await restoring.run()
    return restoring.sessions


class _Restoring:
    def __init__(self, context: SessionContext, values: dict[bytes, bytes]) -> None:
        self._context = context
        self.sessions: dict[str, ClientSession] = {}
        self._values = values
        self._orphans: list[bytes] = []

    async def run(self) -> None:
        context, values = self._context, self._values
        keys = defaultdict(list)
        for key in values:
            keys[key[:1]].append(key)
        async for key in _in_slices(keys[STATE_KEY]):
            self._restore_state(parse_key(key)[0], values[key])
        async for session, rest, value in _in_slices(self._owned(keys[FILTER_KEY])):
            context.subscribing.restore(session, rest.decode(), value)
        for session, rest, value in self._owned(sorted(keys[ENDED_KEY])):  # the oldest first
            context.subscribing.restore_ended(session, int.from_bytes(rest, "big"), value)
        for key in keys[GROUP_KEY]:
            name, topic_filter = parse_key(key)
            positions = decode_group(values[key])
            context.share_shards.restore(name, topic_filter.decode(), positions)
        async for session, rest, value in _in_slices(self._owned(sorted(keys[RUN_KEY]))):
            _restore_runs(session, int.from_bytes(rest, "big"), value)
        for session in self.sessions.values():
            session.outbox.restored()
        if self._orphans:
            log.info("records of sessions that are over are removed", count=len(self._orphans))
            context.store.remove_orphans(self._orphans)

    def _owned(self, keys: Iterable[bytes]) -> Iterator[tuple[ClientSession, bytes, bytes]]:
        """Yield (session, what follows its client in the key, value); note who has none."""
        for key in keys:
            client_id, rest = parse_key(key)
            session = self.sessions.get(client_id)
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
        session.inbound = stored.inbound
        outbox = session.outbox = Outbox(next_seq=stored.base)
        outbox.next_seq = stored.next_seq
        outbox.done = stored.done
        outbox.received = set(stored.received)
        self.sessions[client_id] = session


async def _in_slices(records: Iterable[_One]) -> AsyncIterator[_One]:
    """Yield records in order; the loop serves others in between."""
    for at, one in enumerate(records, 1):
        yield one
        if at % RECORDS_PER_TURN == 0:
            await asyncio.sleep(0)


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
