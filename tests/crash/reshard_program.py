"""A node's streams alone, which move their keys to other shards, to be killed at an append.

    python -m tests.crash.reshard_program FOLDER FLUSH fill|load|load-delays APPEND

``fill`` stores positions of many groups, and delayed messages. All say ``state DIGEST COUNT`` of
all keys and messages, ``shards COUNT`` and ``home COUNT``, of those in their own shard. The process
kills itself as it gives the storage its append number APPEND, 0 for never; ``load-delays`` counts
from the load of delayed messages on.
"""

import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

import uvloop

from features.delay.entries import parse_waiting
from gateway.broker import Broker
from gateway.clock import SystemClock
from gateway.coalescer import Coalescer
from gateway.config.queues import DelayConfig
from gateway.config.settings import BrokerConfig, GroupsConfig, TopicDefaults
from gateway.delays.sharded import ShardedDelays
from gateway.futures import await_done
from gateway.groups.cursor_keys import parse_group_key
from gateway.groups.cursors import Commit, CursorManager
from gateway.groups.model import GroupName
from gateway.metadata.sql import SqlMetadata
from gateway.metadata.store import reconcile
from gateway.model import TopicName, parse_batch_header
from gateway.placement import SingleNode, shard_of
from gateway.records.codec import NO_HEADERS
from gateway.records.record_run import RecordRun
from gateway.shard_count import shard_count_of
from gateway.slots import shard_of_group
from gateway.storage import Entry, OnDone
from gateway.topics.manager import TopicManager
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.config import SegmentLogConfig
from tests.support.storage_host import TopicsHost

GROUP_COUNT = 3_000
POSITIONS_PER_GROUP = 3
PARTITIONS = 8
RUN_COUNTS = (1, 20)  # of messages that are delayed together
DELAY_MS = 3_600_000


def say(word: str, *numbers: object) -> None:
    os.write(1, f"{word} {' '.join(map(str, numbers))}\n".encode())


class Node(TopicsHost):
    """The parts of a node that keep positions."""

    async def open(self, folder: Path, flush: str, what: str, kill_at: int) -> None:
        clock = SystemClock()
        self.metadata = SqlMetadata("sqlite", data_dir=folder)
        await self.metadata.open()
        self.topics = TopicManager(self.metadata, defaults=TopicDefaults(), clock=clock)
        await self.topics.load()
        config = SegmentLogConfig(flush=flush, segment_bytes=1 << 20, reserve_bytes=1 << 19)
        storage = SegmentLog(config, data_dir=folder, clock=clock)
        await storage.open(self)
        assert storage.data_uuid is not None
        await reconcile(self.metadata, storage.data_uuid, log_is_empty=storage.is_empty)
        self.shard_count = await shard_count_of(self.metadata, self.topics, None)
        placement = SingleNode(
            storage.incarnation,
            node_id=1,
            cluster_id="cluster-of-one-node-22",
            shard_count=self.shard_count,
        )
        self.broker = Broker(storage, placement, clock, BrokerConfig())
        if what == "load":
            kill_at_append(storage, kill_at)
        self.cursors = await CursorManager.open(self.broker, self.topics, clock, GroupsConfig())
        if what == "load-delays":
            kill_at_append(storage, kill_at)
        self.delays = await ShardedDelays.open(self.broker, self.topics, clock, DelayConfig())
        self.due_unix_ms = clock.unix_ms() + DELAY_MS

    async def fill(self) -> None:
        topic = await self.topics.create(TopicName("default", "orders"), partitions=PARTITIONS)
        names = [GroupName("default", f"group-{number}") for number in range(GROUP_COUNT)]
        await asyncio.gather(
            *(self.commit(name, topic.uuid, number) for number, name in enumerate(names))
        )
        coalescer = Coalescer(self.broker)
        for number in range(PARTITIONS):
            for count in RUN_COUNTS:
                values = tuple(b"%d/%d/%d" % (number, count, at) for at in range(count))
                run = RecordRun(None, values, NO_HEADERS, 0)
                run.deliver_at_unix_ms = self.due_unix_ms
                partition = self.broker.partition(topic, number)
                await await_done(partial(coalescer.add, partition, run))

    async def commit(self, group: GroupName, uuid: UUID, offset: int) -> None:
        commits = [Commit(uuid, number, offset) for number in range(POSITIONS_PER_GROUP)]
        await await_done(lambda on_done: self.cursors.commit(group, commits, on_done))

    async def report(self) -> None:
        stream = self.cursors.stream
        digest = hashlib.sha256()
        for key, value in sorted(stream.values.items()):
            digest.update(key + value)
        home, waiting = 0, await self.delayed()
        for message, _ in sorted(waiting):
            digest.update(message)
        home += sum(is_home for _, is_home in waiting)
        say("state", digest.hexdigest(), len(stream.values) + len(waiting))
        for number, shard in enumerate(stream.partitions):
            for key in shard.values:
                home += number == shard_of_group(*parse_group_key(key, 1)[0], self.shard_count)
        say("shards", self.shard_count)
        say("home", home)

    async def delayed(self) -> list[tuple[bytes, bool]]:
        """Return the delayed messages, and whether each is in its own shard."""
        found = []
        for number, delays in self.delays._by_number.items():
            stream = delays.stream
            offset = stream.partition.log_start_offset
            while offset < stream.partition.high_watermark:
                for batch in await stream.read(offset):
                    for _, _, value in stream.live_in(batch):
                        _, _, uuid, partition, _, tail = parse_waiting(value)
                        topic = self.topics.by_uuid(UUID(bytes=uuid))
                        assert topic is not None
                        home = shard_of(topic, partition, self.broker.placement)
                        found.append((tail, home == number))
                    offset = parse_batch_header(batch).last_offset + 1
        assert len(found) == self.delays.total - sum(RUN_COUNTS[1:]) * PARTITIONS + PARTITIONS
        return found


def kill_at_append(storage: SegmentLog, number: int) -> None:
    """Kill the process when the storage has got so many appends; it may have written the last."""
    enqueue = storage.enqueue
    left = number

    def counting(entries: Sequence[Entry], on_done: OnDone, *, reserved: bool = False) -> None:
        nonlocal left
        enqueue(entries, on_done, reserved=reserved)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    storage.enqueue = counting  # type: ignore[method-assign]


async def main(folder: Path, flush: str, what: str, kill_at: int) -> None:
    node = Node()
    await node.open(folder, flush, what, kill_at)
    if what == "fill":
        await node.fill()
    await node.report()
    await asyncio.sleep(0)
    os._exit(0)  # as a crash: nothing is closed


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])))
