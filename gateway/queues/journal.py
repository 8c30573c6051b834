"""Journal of lanes across restarts: the internal topic ``__queues``, or another one.

The topic has a partition for each shard; a lane's entries are in the shard of its partition. Each
record is an entry of one lane: its changes in a turn of the loop
(``gateway.queues.journal_entries``), or a snapshot, marked by a header.

    record key    topic uuid (16 bytes), partition number u32, group as UTF-8
    record value  the entry, in the lane's own form (``features.queue``)

A snapshot too large for one record is written as pieces, each with a header that has its index,
then the end, whose header has the number of pieces. No other entry of the lane comes between
them; an incomplete sequence does not count.

The first entry of a lane is a snapshot; deltas before one belong to a deleted queue. When a
partition exceeds twice the size of its last snapshots plus a margin, a snapshot of every lane in it
is appended and everything before is truncated (``gateway.queues.journal_partition``). The journal
may use the space that the storage keeps back, so that messages can be settled on a full disk.

After a refused entry, memory is ahead of the journal: the lane's next entry is a snapshot.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from features.queue.model import ContiguousTake
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.coalescer import Coalescer, Part
from gateway.errors import GatewayError, NotLeader, StorageUnavailable
from gateway.futures import await_done
from gateway.model import DEFAULT_NAMESPACE, TopicName
from gateway.partition import Partition
from gateway.queues.journal_entries import LARGE_BYTES, Journaled, OnEntry, PendingEntries
from gateway.queues.journal_partition import JournalPartition, SnapshotPart
from gateway.queues.journal_reader import read_entries
from gateway.queues.snapshot_pieces import snapshot_runs
from gateway.records.codec import NO_HEADERS
from gateway.records.record_run import RecordRun
from gateway.slots import shard_of_key
from gateway.storage import OnDone
from gateway.topics.internal import internal_topic
from gateway.topics.manager import Topic, TopicManager

QUEUES_TOPIC: Final = "__queues"
CHECKS_PER_ROOM: Final = 16  # looking at the size is not free
RECORD_BYTES_MAX: Final = 64 * 1024 * 1024
STOP_BYTES_MAX: Final = 1024 * 1024  # a longer journal is rewritten when the node stops

LANES_MOVED_TOGETHER: Final = 64  # in one append
PARTITION_BYTES: Final = 20  # of a lane id: the lane's topic and partition number

_CONFIGS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "max.message.bytes": str(RECORD_BYTES_MAX),
}


def lane_id(topic_uuid: UUID, number: int, group: str) -> bytes:
    """Return the key of a lane's entries."""
    return topic_uuid.bytes + number.to_bytes(4, "big") + group.encode()


class QueueJournal:
    """Writes and reads entries. Loop only. A shard is loaded before anything of it is put."""

    def __init__(
        self,
        topic: Topic,
        broker: Broker,
        clock: Clock,
        *,
        room_bytes: int,
        coalescer: Coalescer | None = None,
    ) -> None:
        self._topic = topic
        self._files: dict[int, JournalPartition] = {}  # by number, of the shards that are open
        self._shard_count = broker.placement.shard_count
        self._has_misplaced = False  # entries in other shards than their own
        self.rewrites = 0
        self.refusals = 0
        self._broker = broker
        self._clock = clock
        self._coalescer = coalescer or Coalescer(broker, reserved=True)
        # Where others share the rounds, entries keep their place among what those put.
        self._gathers = coalescer is None
        self._gathering = PendingEntries(self._coalescer, self._append)
        self._room_bytes = room_bytes // self._shard_count
        self._unchecked_bytes = 0
        self._lanes: Callable[[], Iterable[Journaled]] = tuple
        self.open_shards: set[int] = set()

    @classmethod
    async def open(
        cls,
        broker: Broker,
        topics: TopicManager,
        clock: Clock,
        *,
        room_bytes: int,
        name: str = QUEUES_TOPIC,
        coalescer: Coalescer | None = None,
    ) -> "QueueJournal":
        """Return the journal, not loaded; its topic is made at the first start.

        What else goes through the ``coalescer`` keeps its order with the entries.
        """
        topic_name = TopicName(DEFAULT_NAMESPACE, name)
        topic = await internal_topic(topics, topic_name, broker.placement.shard_count, _CONFIGS)
        return cls(topic, broker, clock, room_bytes=room_bytes, coalescer=coalescer)

    @property
    def partitions(self) -> list[Partition]:
        """Partitions of the shards that are open, by number."""
        return [self._files[number].partition for number in sorted(self._files)]

    async def load(self, on_entry: OnEntry) -> None:
        """Read the entries of all shards of the node. Errors: as ``load_shards``."""
        await self.load_shards(self._broker.shards.owned(), on_entry)

    async def load_shards(self, shards: Collection[int], on_entry: OnEntry) -> None:
        """Read the entries of some shards, in order by lane; then entries can be put there.

        Errors: as ``read_entries``, and ``NotLeader``.
        """
        count = len(self._topic.partition_ids)
        numbers = [n for shard in shards for n in range(shard, count, self._shard_count)]
        for number in sorted(numbers):
            partition = self._broker.partition(self._topic, number)
            self._files[number] = JournalPartition(
                partition, self._broker, self, room_bytes=self._room_bytes
            )
        partitions = [self._files[number].partition for number in sorted(numbers)]
        self._has_misplaced |= await read_entries(
            self._broker, partitions, self._is_home, on_entry
        )
        self.open_shards.update(shards)
        self._unchecked_bytes = self._room_bytes  # the next entry has a look at the sizes

    def close_shards(self, shards: Collection[int]) -> None:
        """Forget the partitions of some shards."""
        self.open_shards.difference_update(shards)
        for number in [n for n in self._files if n % self._shard_count in shards]:
            self._files.pop(number).stop()

    async def start(self, lanes: Callable[[], Iterable[Journaled]]) -> None:
        """Move entries to their shards, then rewrite partitions when it is due, now and later.

        Nothing is put before this returns. ``lanes`` says of what. Errors: ``StorageUnavailable``.
        """
        self._lanes = lanes
        if self._has_misplaced and self._broker.placement.owns_all:
            await self._move_home(list(lanes()))
        self._rewrite_when_due()

    async def _move_home(self, lanes: Sequence[Journaled]) -> None:
        """Write a snapshot of each lane in its shard, then truncate all that was before."""
        starts = [(partition, partition.log_end_offset) for partition in self.partitions]
        for start in range(0, len(lanes), LANES_MOVED_TOGETHER):
            some = lanes[start : start + LANES_MOVED_TOGETHER]
            await await_done(partial(self.put_snapshots, some))
        if any(file.has_lost_piece for file in self._files.values()):
            raise StorageUnavailable("a piece of a snapshot of a queue's journal was refused")
        for partition, offset in starts:
            await await_done(partial(self._broker.truncate_before, partition, offset))
        self._has_misplaced = False

    def _home_of(self, lane: Journaled) -> JournalPartition:
        """Return the partition of a lane's shard, which is that of the lane's own partition.

        Error: ``NotLeader`` when the shard has left, or is not open.
        """
        shard = self._shard_of(lane.lane_id)
        file = self._files.get(shard)
        if file is None or lane.has_left:
            msg = f"shard {shard} of {self._topic.name.name} is not open"
            raise NotLeader(msg)
        return file

    def _shard_of(self, lane: bytes) -> int:
        count = self._shard_count
        return 0 if count == 1 else shard_of_key(lane[:PARTITION_BYTES], count)

    def _is_home(self, lane: bytes, partition: Partition) -> bool:
        return self._shard_of(lane) == partition.number

    # --- writing

    def put(self, lane: Journaled, entry: bytes, on_done: OnDone | None = None) -> None:
        """Append an entry; ``on_done`` runs once it is durable, never before this returns.

        When it is refused, ``on_done`` gets the error; refused entries come back in reverse
        order. What is too large to be an entry is refused too. Of a lane that is gone nothing
        is written.
        """
        if lane.is_gone:
            if on_done is not None:
                asyncio.get_running_loop().call_soon(on_done, None)
            return
        if not self._gathers:
            self._append(lane, entry, () if on_done is None else (on_done,))
            return
        gathered = self._gathering.of(lane)
        gathered.add(entry)
        if on_done is not None:
            gathered.waiting.append(on_done)
        if len(entry) > LARGE_BYTES:
            self._gathering.append()
        else:
            self._gathering.append_soon()

    def put_taken(self, lane: Journaled, taken: ContiguousTake) -> None:
        """Append a take of contiguous messages; there is no callback."""
        if not lane.is_gone:
            self._gathering.of(lane).take(taken)
            self._gathering.append_soon()

    def put_done(
        self, lane: Journaled, ranges: Sequence[range], on_done: OnDone | None = None
    ) -> None:
        """Append settled messages; otherwise as ``put``."""
        if lane.is_gone:
            if on_done is not None:
                asyncio.get_running_loop().call_soon(on_done, None)
            return
        gathered = self._gathering.of(lane)
        gathered.done(ranges)
        if on_done is not None:
            gathered.waiting.append(on_done)
        self._gathering.append_soon()

    def _append(self, lane: Journaled, entry: bytes, waiting: Sequence[OnDone]) -> None:
        on_kept = partial(self._done, lane, waiting)
        try:
            partition, run = self.part(lane, entry)
            if lane.is_ahead:  # a piece of its snapshot was refused: the end would not count
                raise StorageUnavailable("a piece of a snapshot was refused")
            self._coalescer.add(partition, run, on_kept)
        except GatewayError as error:  # who hands out messages goes on: they come again
            lane.is_ahead = True
            refusal = StorageUnavailable(f"an entry of a queue's journal: {error}")
            asyncio.get_running_loop().call_soon(on_kept, refusal)

    def part(self, lane: Journaled, entry: bytes) -> Part:
        """Return an entry, or the snapshot due in its place, for an append that holds more.

        Who appends it calls ``note`` when that has ended. Error: ``NotLeader`` when the lane's
        shard is not open.
        """
        is_ahead = lane.is_ahead
        # Now, not after the append: to make room it may refuse what this lane put before.
        lane.is_ahead = False
        part = self.snapshot_part(lane).part if is_ahead else self.delta(lane, entry)
        self._unchecked_bytes += part[1].size_bytes
        return part

    def note(self, lanes: Iterable[Journaled], error: StorageUnavailable | None) -> None:
        """Take note that the append of ``part`` of some lanes is durable, or was refused."""
        if error is not None:
            for lane in lanes:
                lane.is_ahead = True
            self.refusals += 1
        if self._unchecked_bytes >= self._room_bytes // CHECKS_PER_ROOM:
            self._rewrite_when_due()

    def put_snapshots(self, lanes: Iterable[Journaled], on_done: OnDone) -> None:
        """Append a snapshot of each lane, all or none; for queues that are made."""
        self.put_pending()
        self.append_snapshots([self.snapshot_part(lane).part for lane in lanes], on_done)

    def append_snapshots(self, parts: Sequence[Part], on_done: OnDone) -> None:
        """Append the ends of snapshots as one. Errors: as ``Coalescer.add_many``."""
        self._coalescer.add_many(parts, on_done)

    def delta(self, lane: Journaled, entry: bytes) -> Part:
        """Return an entry as a part of an append that holds more; ``seal`` comes before it."""
        now_unix_ms = self._clock.unix_ms()
        run = RecordRun(lane.lane_id, (entry,), NO_HEADERS, now_unix_ms)
        return self._home_of(lane).partition, run

    def parts(self, lane: Journaled, entry: bytes) -> list[Part]:
        """Return ``delta`` in a list."""
        return [self.delta(lane, entry)]

    def put_pending(self) -> None:
        """Add pending entries to the open round: they come before a snapshot."""
        self._gathering.append()

    def seal(self) -> None:
        """Append pending entries now instead of at the end of the tick."""
        self._gathering.append()
        self._coalescer.seal()

    def snapshot_part(self, lane: Journaled) -> SnapshotPart:
        """Return the end of a lane's snapshot; the pieces before it are appended at once."""
        file = self._home_of(lane)
        runs = snapshot_runs(lane.lane_id, lane.snapshot(), self._clock.unix_ms())
        for run in runs.pieces:
            self._coalescer.add(file.partition, run, partial(self._piece_done, lane, file))
            self._coalescer.seal()
        pieces_bytes = sum(run.size_bytes for run in runs.pieces)
        self._unchecked_bytes += pieces_bytes
        return SnapshotPart((file.partition, runs.end), pieces_bytes)

    def _piece_done(
        self, lane: Journaled, file: JournalPartition, error: StorageUnavailable | None
    ) -> None:
        if error is not None:  # the end may be kept all the same, and will not count
            lane.is_ahead = True
            file.has_lost_piece = True

    def _done(
        self, lane: Journaled, waiting: Sequence[OnDone], error: StorageUnavailable | None
    ) -> None:
        if error is not None:
            lane.is_ahead = True  # before the callers hear: they may put more
            waiting = waiting[::-1]
        for on_done in waiting:
            on_done(error)
        if error is not None:
            # Again: one of them may have had a snapshot written, before the others.
            lane.is_ahead = True
        self.note((), error)

    # --- keeping small

    def lanes_in(self, partition: Partition) -> list[Journaled]:
        """See ``SnapshotWriter``."""
        return [lane for lane in self._lanes() if self._is_home(lane.lane_id, partition)]

    def _rewrite_when_due(self) -> None:
        self._unchecked_bytes = 0
        for file in list(self._files.values()):
            file.rewrite_when_due(self._rewritten)

    @property
    def stored_bytes(self) -> int:
        """Bytes of all entries."""
        return sum([file.stored_bytes for file in self._files.values()])

    def _rewritten(self) -> None:
        self.rewrites += 1

    async def close(self) -> None:
        """Append pending entries and shorten the journal, so that the next start is fast."""
        for file in self._files.values():
            file.stop()
        self.seal()
        bound_bytes = STOP_BYTES_MAX // max(len(self._files), 1)
        large = [file for file in self._files.values() if file.stored_bytes > bound_bytes]
        starts = [(file, file.partition.log_end_offset) for file in large]
        lanes = [lane for file in large for lane in self.lanes_in(file.partition)]
        for file in large:
            file.has_lost_piece = False
        try:
            if lanes:
                await await_done(partial(self._put_now, lanes))
            for file, start in starts:
                if not file.has_lost_piece:
                    file.cut(start)
        except GatewayError:
            return  # The journal stays as it is, which only makes the start longer.

    def _put_now(self, lanes: Sequence[Journaled], on_done: OnDone) -> None:
        self.put_snapshots(lanes, on_done)
        self._coalescer.seal()
