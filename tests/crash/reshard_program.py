"""A node's streams alone, which move their keys to other shards, to be killed at an append.

    python -m tests.crash.reshard_program FOLDER FLUSH fill|load APPEND

``fill`` stores positions of many groups. Both say ``state DIGEST COUNT`` of all keys and values,
``shards COUNT`` and ``home COUNT``, of keys in their own shard. The process kills itself as it
gives the storage its append number APPEND, 0 for never.
"""

import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import uvloop

from gateway.broker import Broker
from gateway.clock import SystemClock
from gateway.config.settings import BrokerConfig, GroupsConfig, TopicDefaults
from gateway.futures import await_done
from gateway.groups.cursor_keys import parse_group_key
from gateway.groups.cursors import Commit, CursorManager
from gateway.groups.model import GroupName
from gateway.metadata.sql import SqlMetadata
from gateway.metadata.store import reconcile
from gateway.model import TopicName
from gateway.placement import SingleNode
from gateway.shard_count import shard_count_of
from gateway.slots import shard_of_group
from gateway.storage import Entry, OnDone
from gateway.topics.manager import TopicManager
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.config import SegmentLogConfig
from tests.support.storage_host import TopicsHost

GROUP_COUNT = 3_000
POSITIONS_PER_GROUP = 3


def say(word: str, *numbers: object) -> None:
    os.write(1, f"{word} {' '.join(map(str, numbers))}\n".encode())


class Node(TopicsHost):
    """The parts of a node that keep positions."""

    async def open(self, folder: Path, flush: str, kill_at: int) -> None:
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
        kill_at_append(storage, kill_at)
        self.cursors = await CursorManager.open(self.broker, self.topics, clock, GroupsConfig())

    async def fill(self) -> None:
        topic = await self.topics.create(TopicName("default", "orders"), partitions=3)
        names = [GroupName("default", f"group-{number}") for number in range(GROUP_COUNT)]
        await asyncio.gather(
            *(self.commit(name, topic.uuid, number) for number, name in enumerate(names))
        )

    async def commit(self, group: GroupName, uuid: UUID, offset: int) -> None:
        commits = [Commit(uuid, number, offset) for number in range(POSITIONS_PER_GROUP)]
        await await_done(lambda on_done: self.cursors.commit(group, commits, on_done))

    def report(self) -> None:
        stream = self.cursors.stream
        digest = hashlib.sha256()
        for key, value in sorted(stream.values.items()):
            digest.update(key + value)
        say("state", digest.hexdigest(), len(stream.values))
        home = 0
        for number, shard in enumerate(stream.partitions):
            for key in shard.values:
                home += number == shard_of_group(*parse_group_key(key, 1)[0], self.shard_count)
        say("shards", self.shard_count)
        say("home", home)


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
    await node.open(folder, flush, kill_at)
    if what == "fill":
        await node.fill()
    node.report()
    await asyncio.sleep(0)
    os._exit(0)  # as a crash: nothing is closed


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])))
