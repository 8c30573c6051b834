"""Sessions by shard: opened, quiesced and closed while the node runs.

A session that leaves is stored with all that its client needs: subscriptions, messages in flight,
positions in all partitions, and the will. Then its client is told to connect to the next owner.
Positions in partitions of other nodes stay as they are, until the node serves the partition: then
the session reads on from there.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from adapters.mqtt.ports import FeedPort, GroupPort, SessionConnection, SessionPort
from adapters.mqtt.sessions.client_session import ClientSession
from adapters.mqtt.sessions.registry import Sessions
from adapters.mqtt.sessions.restoring import restore
from adapters.mqtt.sessions.session_context import SessionContext
from gateway.broker import Broker
from gateway.errors import StorageUnavailable
from gateway.model import DEFAULT_NAMESPACE
from gateway.slots import shard_of_client

SESSIONS_PER_TURN: Final = 500


class SessionShards:
    """See the module. A ``ShardState`` of ``gateway.shard_lifecycle``, opened after feeds."""

    def __init__(
        self,
        broker: Broker,
        context: SessionContext,
        sessions: Sessions,
        list_identifiers: Callable[[SessionPort], None],
    ) -> None:
        """``list_identifiers`` puts the open QoS 2 identifiers into a session's state."""
        self._shards = broker.shards
        self._context = context
        self._sessions = sessions
        self._list_identifiers = list_identifiers
        self._is_start = True
        self._loop = asyncio.get_running_loop()
        self.open_shards: set[int] = set()
        context.feeds.before_return = self._note_positions
        broker.shards.on_open.append(self._go_on)

    def close(self) -> None:
        """Follow shards no more."""
        self._shards.on_open.remove(self._go_on)

    def shard_of(self, client_id: str) -> int:
        """Return the shard of a client."""
        return shard_of_client(DEFAULT_NAMESPACE, client_id, self._shards.shard_count)

    def _of(self, shards: Collection[int]) -> Iterator[ClientSession]:
        for session in tuple(self._sessions):
            if self.shard_of(session.client_id) in shards:
                yield session

    # --- ShardState

    async def load_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: restore sessions, groups and lanes."""
        context = self._context
        restored = await restore(context, shards)
        is_start, self._is_start = self._is_start, False
        await context.share_shards.lanes.load_shards(
            shards, restored.values(), is_start=is_start
        )
        self._sessions.add(restored)
        self.open_shards.update(shards)

    def quiesce_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: store what leaves, and send the clients away when it is durable."""
        self._context.write_journals()
        for session in self._of(shards):
            connection = session.connection
            if connection is not None:
                connection.leave_node()
            if session.is_kept:
                self._suspend(session, connection)
            elif connection is not None:
                with_will = connection.with_will and session.is_attached
                self._sessions.closed(
                    session, connection, with_will=with_will, session_expiry_interval=None
                )
                self._loop.call_soon(connection.send_away)  # then the next owner is known
        self._context.share_shards.quiesce(shards)

    def _suspend(self, session: ClientSession, connection: SessionConnection | None) -> None:
        is_changed = session in self._context.dirty or bool(session.inbound.shards)
        self._list_identifiers(session)
        self._sessions.suspend(session)
        if connection is not None:
            self._context.store.put_state(session, partial(_send_away, connection))
        elif is_changed:
            self._context.store.put_state(session)

    def close_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: forget the sessions, which are stored."""
        self.open_shards.difference_update(shards)
        for session in self._of(shards):
            self._sessions.forget(session)
        self._context.store.stream.close_shards(shards)
        self._context.lanes.journal.close_shards(shards)

    # --- partitions that come back

    async def _note_positions(self, returning: Mapping[int, int]) -> None:
        """Let readers note their offsets in partitions that this node is about to serve again."""
        for at, session in enumerate(tuple(self._sessions), 1):
            if session.is_attached and session.reads_log:
                for partition_id, offset in returning.items():
                    session.behind.setdefault(partition_id, offset)
            if at % SESSIONS_PER_TURN == 0:
                await asyncio.sleep(0)
        for group in self._context.groups.values():
            if group.online:
                for partition_id, offset in returning.items():
                    group.behind.setdefault(partition_id, offset)

    def _go_on(self, shards: Collection[int]) -> None:
        """Go on in partitions that are served from now on.

        Messages in flight go first: what is new to the session, or dealt to it, waits for them.
        """
        self._context.share_shards.end_empty_groups()
        for redelivery in tuple(self._context.held_back.values()):
            redelivery.go_on()
        came = [feed for feed in self._context.feeds if feed.partition.shard in shards]
        if came:
            self._context.start(self._go_on_over_turns(came))

    async def _go_on_over_turns(self, came: Sequence[FeedPort]) -> None:
        context = self._context
        for group in tuple(context.groups.values()):
            self._bound_backlog(group, came)
            group.go_on()
        for at, session in enumerate(tuple(self._sessions), 1):
            self._bound_backlog(session, came)
            if session.behind and session.is_attached:
                session.go_on()
            if at % SESSIONS_PER_TURN == 0:
                await asyncio.sleep(0)

    def _bound_backlog(self, reader: SessionPort | GroupPort, came: Iterable[FeedPort]) -> None:
        """Skip more than ``backlog_max`` in partitions that this node serves again."""
        for feed in came:
            offset = reader.behind.get(feed.partition_id)
            oldest = feed.live_offset - self._context.config.session.backlog_max
            if offset is not None and offset < oldest:
                reader.on_skipped(oldest - offset)
                reader.behind[feed.partition_id] = oldest


def _send_away(connection: SessionConnection, _error: StorageUnavailable | None) -> None:
    connection.send_away()
