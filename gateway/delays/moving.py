"""Moves of delayed messages to the shard of their partition.

In directories of earlier versions, and after ``headgate reshard``, messages lie in another shard
than their own. A move is one append: it removes the messages of one stored batch where they are,
and adds them in their own shards, with new numbers. Those of another node's shards go by a transfer
(``gateway.transfer``), whose intent is in that append. So a move that was cut short goes on at the
next start, or with the next owner.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

import structlog

from gateway.broker import Broker
from gateway.clock import Clock
from gateway.coalescer import Coalescer, Part
from gateway.delays.leaving import Leaving, Live
from gateway.delays.manager import Delays
from gateway.delays.pending_messages import PendingMessages
from gateway.errors import (
    GatewayError,
    NotLeader,
    Overloaded,
    StorageUnavailable,
    as_value,
)
from gateway.futures import await_done
from gateway.model import Buffer, parse_batch_header
from gateway.records.codec import NO_HEADERS
from gateway.records.record_run import RecordRun
from gateway.storage import OnDone
from gateway.topics.manager import Topic
from gateway.transfer.payload import Addressed
from gateway.transfer.transfers import Transfers
from gateway.write_steps import end_held

RETRY_S: Final = 0.5
"""Less than a message is in memory between two attempts to deliver it where it is."""

Adopt = Callable[[int, Sequence[bytes]], list[PendingMessages]]
"""Return entries as parts of the stream of a shard, which is open; see ``ShardedDelays.adopt``."""

log = structlog.get_logger()


class HomeMoves:
    """Moves messages until each is in its own shard. Loop only."""

    def __init__(  # noqa: PLR0913, PLR0917 - its surroundings, made once
        self,
        topic: Topic,
        broker: Broker,
        clock: Clock,
        streams: Mapping[int, Delays],
        open_shards: Collection[int],
        adopt: Adopt,
        transfers: Transfers | None,
    ) -> None:
        """``streams``: live view of the delays by partition number, ``open_shards`` of shards.

        Without ``transfers`` messages stay where they are while their shard is another node's.
        """
        self._topic = topic
        self._broker = broker
        self._clock = clock
        self._streams = streams
        self._open_shards = open_shards
        self._adopt = adopt
        self._transfers = transfers
        self._coalescer = Coalescer(broker, reserved=True)
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._is_closed = False
        broker.placement.on_change.append(self._follow_owners)

    def close(self) -> None:
        """Stop; the next start goes on."""
        self._is_closed = True
        self._broker.placement.on_change.remove(self._follow_owners)
        if self._task is not None:
            self._task.cancel()
        if self._retry is not None:
            self._retry.cancel()

    def _follow_owners(self, _shards: Collection[int]) -> None:
        self.wake()

    def wake(self) -> None:
        """Move what can go from now on."""
        if self._task is None and not self._is_closed and any(map(self._has_work, self._all())):
            self._task = self._loop.create_task(self._run())
            self._task.add_done_callback(self._ended)

    async def _run(self) -> None:
        try:
            await self.move_all()
        except GatewayError as error:
            log.warning("delayed messages not moved", error=str(error))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if self._is_closed or task.cancelled():
            return
        if self._retry is None and any(map(self._has_work, self._all())):
            self._retry = self._loop.call_later(RETRY_S, self._try_again)
        task.result()  # a bug goes to the loop's exception handler

    def _try_again(self) -> None:
        self._retry = None
        self.wake()

    def _all(self) -> list[Delays]:
        return list(self._streams.values())

    def _has_work(self, delays: Delays) -> bool:
        return any(map(self._can_go, set(delays.stream.misplaced.values())))

    def _can_go(self, home: int) -> bool:
        """Whether messages of a shard can be moved there, or sent to its owner."""
        placement = self._broker.placement
        if placement.owns(home):
            return home in self._open_shards
        return self._transfers is not None and placement.owner(home) is not None

    async def move_all(self) -> None:
        """Move what can go now; return when it is durable here.

        What is refused for a while is left: ``wake`` tries it again. Errors:
        ``StorageUnavailable``, ``CorruptBatch``.
        """
        async with self._lock:
            for delays in self._all():
                if self._has_work(delays):
                    await self._move_stream(delays)

    async def _move_stream(self, delays: Delays) -> None:
        stream = delays.stream
        partition = stream.partition
        offset, end = partition.log_start_offset, partition.high_watermark
        moved = 0
        try:
            while offset < end:
                for batch in await stream.read(max(offset, partition.log_start_offset)):
                    moved += await self._move_batch(delays, batch)
                    offset = parse_batch_header(batch).last_offset + 1
        except (NotLeader, Overloaded) as error:
            log.info("delayed messages are moved later", error=str(error))
        delays.forget_moved()
        if moved:
            name = repr(partition)
            log.info("delayed messages moved to their shards", partition=name, count=moved)

    async def _move_batch(self, delays: Delays, batch: Buffer) -> int:
        """Move the messages of a batch that can go, in one append; return their number."""
        misplaced = delays.stream.misplaced
        live = [
            one
            for one in delays.stream.live_in(batch)
            if one[0] in misplaced and self._can_go(misplaced[one[0]])
        ]
        if live:
            await await_done(partial(self._move, delays, live))
        return len(live)

    def _move(self, delays: Delays, live: Live, on_done: OnDone) -> None:
        """Append messages in their shards, and their removal. Errors: as ``Transfers.append``."""
        source = delays.stream.partition.shard
        leaving = Leaving(delays, live, self._clock.unix_ms())
        by_home: dict[int, list[bytes]] = {}
        for number, value in leaving.entries:
            by_home.setdefault(delays.stream.misplaced[number], []).append(value)
        pending: list[PendingMessages] = []
        addressed: list[Addressed] = []

        def kept(error: StorageUnavailable | None) -> None:
            end_held([leaving, *pending], error)
            on_done(error)

        try:
            for home, values in by_home.items():
                if self._is_here(source, home):
                    pending += self._adopt(home, values)
                else:
                    addressed.append(self._addressed(home, values))
            parts = [leaving.removal, *[one.part for one in pending if one.part is not None]]
            self._append(source, addressed, parts, kept)
        except GatewayError as error:
            end_held([leaving, *pending], as_value(error))
            raise

    def _is_here(self, source: int, home: int) -> bool:
        """Whether messages go to a shard in one append: nothing is on its way there before."""
        if not self._broker.placement.owns(home):
            return False
        return self._transfers is None or not self._transfers.is_open(source, home)

    def _addressed(self, home: int, values: Sequence[bytes]) -> Addressed:
        run = RecordRun(None, tuple(values), NO_HEADERS, self._clock.unix_ms())
        return Addressed(self._topic, home, run)

    def _append(
        self, source: int, addressed: list[Addressed], parts: list[Part], on_done: OnDone
    ) -> None:
        if not addressed:
            self._coalescer.add_many(parts, on_done, as_is=True)
            self._coalescer.seal()
            return
        assert self._transfers is not None
        self._transfers.append(
            source, addressed, on_done, beside=parts, coalescer=self._coalescer
        )
