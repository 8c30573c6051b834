"""One of two nodes with a log each, to be killed at a step of a transfer.

    python -m tests.crash.transfer_program FOLDER NODE FLUSH APPEND enqueued|done

Node 1 has the lower half of the shards. It runs ``OPERATIONS`` one after the other: each appends a
number to a partition of its own and, as one decision, to one of node 2. It goes on behind the last
that its own log has, and says ``clear`` when all transfers have ended. Node 2 applies them.

Both say ``values NUMBERS`` when they get a line on the standard input: what their partition has.
The process kills itself as it gives the storage its append number APPEND (0 for never), or when
that is done and nobody knows yet. Appends are counted from the first of an operation on.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from gateway.broker import Broker
from gateway.clock import SystemClock
from gateway.coalescer import Coalescer
from gateway.config.settings import BrokerConfig, TopicDefaults
from gateway.futures import await_done
from gateway.metadata.sql import SqlMetadata
from gateway.model import TopicName
from gateway.placement import Node, shard_of
from gateway.records.codec import NO_HEADERS, decode_batch
from gateway.records.record_run import RecordRun
from gateway.shard_moves import follow_owners
from gateway.storage import Entry, OnDone
from gateway.testing.placement import SettablePlacement
from gateway.topics.manager import Topic, TopicManager
from gateway.transfer import transfers as transfers_module
from gateway.transfer.payload import Addressed
from gateway.transfer.transfers import Transfers
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.config import SegmentLogConfig
from tests.support.socket_network import SocketNetwork
from tests.support.storage_host import TopicsHost
from tests.support.waiting import until

SHARDS: Final = 8
OPERATIONS: Final = 4
PARTITIONS: Final = 16
NAME: Final = TopicName("default", "t")


class ClusterPlacement(SettablePlacement):
    """Halves of two nodes, each in the epoch of its node's start."""

    def __init__(self, node_id: int, epoch: int) -> None:
        nodes = [Node(1, "127.0.0.1"), Node(2, "127.0.0.1")]
        super().__init__(SHARDS, node=nodes[node_id - 1], other=nodes[2 - node_id])
        for shard in range(SHARDS):
            self._owners[shard] = nodes[shard * 2 // SHARDS]
        self.heard(node_id, epoch)

    def heard(self, node_id: int, epoch: int) -> None:
        """Note the epoch of a node's shards."""
        own = [n for n, one in enumerate(self._owners) if one and one.node_id == node_id]
        for shard in own:
            self._epochs[shard] = epoch
        for follow in list(self.on_change):
            follow(own)


class Process(TopicsHost):
    """The parts of a node that transfers need."""

    async def open(self, folder: Path, node_id: int, flush: str) -> None:
        clock = SystemClock()
        self.node_id = node_id
        metadata = SqlMetadata("sqlite", data_dir=folder)
        await metadata.open()
        self.topics = TopicManager(metadata, defaults=TopicDefaults(), clock=clock)
        await self.topics.load()
        config = SegmentLogConfig(flush=flush, segment_bytes=1 << 20, reserve_bytes=1 << 19)
        self.storage = SegmentLog(config, data_dir=folder / f"node-{node_id}", clock=clock)
        await self.storage.open(self)
        epoch = self.storage.incarnation
        placement = ClusterPlacement(node_id, epoch)
        self.broker = Broker(self.storage, placement, clock, BrokerConfig())
        follow_owners(self.broker, self.topics)
        network = SocketNetwork(node_id, epoch, folder / "link", placement.heard)
        network.join(node_id, self.broker.shard_calls)
        self.coalescer = Coalescer(self.broker)
        transfers_module.RETRY_S = 0.01  # type: ignore[misc]
        self.transfers = Transfers(self.broker, self.topics, clock)
        if self.topics.find(NAME) is None:
            await self.topics.create(NAME, partitions=PARTITIONS)
        await self.transfers.open()
        self.topic: Topic = self.topics.get(NAME)
        if node_id == 1:
            network.dial()
        else:
            await network.listen()

    def partition_of(self, node_id: int) -> int:
        """Return the first partition that a node has."""
        placement = self.broker.placement
        for number in range(PARTITIONS):
            owner = placement.owner(shard_of(self.topic, number, placement))
            if owner is not None and owner.node_id == node_id:
                return number
        raise AssertionError("all partitions are on one side")

    async def values(self) -> list[int]:
        """Return what the node's own partition has."""
        partition = self.broker.partition(self.topic, self.partition_of(self.node_id))
        bounds = self.storage.bounds(partition.partition_id)
        batches = await self.storage.read(
            partition.partition_id, 0, bounds.end, bytes_max=1 << 20
        )
        return [int(one.value or b"") for batch in batches for one in decode_batch(batch)]

    async def operate(self) -> None:
        """Run the operations that are not decided yet; return when all transfers have ended."""
        for number in range(len(await self.values()), OPERATIONS):
            run = RecordRun(b"k", (b"%d" % number,), NO_HEADERS, 0)
            addressed = [Addressed(self.topic, self.partition_of(one), run) for one in (1, 2)]
            source = shard_of(self.topic, self.partition_of(1), self.broker.placement)
            await await_done(
                partial(self.transfers.append, source, addressed, coalescer=self.coalescer)
            )
            await until(self.is_clear)
        await until(self.is_clear)

    def is_clear(self) -> bool:
        shards = self.transfers._shards.values()
        return not any(shard.outgoing.open_targets for shard in shards)

    def kill_at(self, number: int, *, when_done: bool) -> None:
        """Kill the process at an append: as it is enqueued, or before anyone hears it is done."""
        enqueue = self.storage.enqueue
        left = number

        def kill() -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        def counting(
            entries: Sequence[Entry], on_done: OnDone, *, reserved: bool = False
        ) -> None:
            nonlocal left
            left -= 1
            is_last = left == 0
            told: OnDone = (lambda _error: kill()) if is_last and when_done else on_done
            enqueue(entries, told, reserved=reserved)
            if is_last and not when_done:
                kill()

        self.storage.enqueue = counting  # type: ignore[method-assign]


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def main(folder: Path, node_id: int, flush: str, kill_at: int, when: str) -> None:
    node = Process()
    await node.open(folder, node_id, flush)
    node.kill_at(kill_at, when_done=when == "done")
    asked = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, asked.set)
    say("ready")
    if node_id == 1:
        await node.operate()
        say("clear")
    await asked.wait()
    say("values", *await node.values())
    os._exit(0)


if __name__ == "__main__":
    _, folder, node_id, flush, kill_at, when = sys.argv
    uvloop.run(main(Path(folder), int(node_id), flush, int(kill_at), when))
