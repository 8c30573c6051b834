"""A node with nothing but a queue and its dead letters, which says what it does, to be killed.

    python -m tests.crash.queue_program FOLDER FLUSH load|hold|redrive|drain

It writes a line for each thing that is kept, after it is kept: ``sent N``, ``got N attempt``
(this one when handed out), ``acked N``, ``moved N``. ``hold`` hands out three messages, of which
one is acknowledged, and says ``held``. ``redrive`` moves dead letters back again and again, and
rejects what comes. ``drain`` hands out all that is left of both
queues and says ``left N`` and ``dead N``, then ``end``.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import uvloop

from features.dead_letter import HOPS_MAX, hops_of
from features.queue.model import Result
from gateway.broker import Broker
from gateway.clock import SystemClock
from gateway.config.queues import QueueConfig
from gateway.config.settings import BrokerConfig, TopicDefaults
from gateway.errors import StorageUnavailable
from gateway.metadata.sql import SqlMetadata
from gateway.model import TopicName
from gateway.placement import SingleNode
from gateway.queues.manager import Queue, QueueManager
from gateway.queues.model import Delivery, DeliveryId, Outcome, QueueSettings
from gateway.records.codec import NO_HEADERS
from gateway.records.record_run import RecordRun
from gateway.topics.manager import TopicManager
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.config import SegmentLogConfig
from tests.crash.queue_consumer import PushedWork
from tests.support.storage_host import TopicsHost

LEASE_MS = 300
SENT_AT_ONCE = 20
WAIT_MS = 1_000
ROUND_COUNT = 200
JOURNAL_ROOM_BYTES = 20_000


def say(word: str, *numbers: object) -> None:
    os.write(1, f"{word} {' '.join(map(str, numbers))}\n".encode())


class Node(TopicsHost):
    """The parts, and one number per message that nobody sends twice."""

    def __init__(self, folder: Path, flush: str) -> None:
        self.folder = folder
        self.flush = flush
        self.clock = SystemClock()

    async def open(self) -> None:
        folder = self.folder
        self.metadata = SqlMetadata("sqlite", data_dir=folder)
        await self.metadata.open()
        self.topics = TopicManager(self.metadata, defaults=TopicDefaults(), clock=self.clock)
        await self.topics.load()
        config = SegmentLogConfig(
            flush=self.flush, segment_bytes=1 << 20, reserve_bytes=1 << 19
        )
        self.storage = SegmentLog(config, data_dir=folder, clock=self.clock)
        await self.storage.open(self)
        placement = SingleNode(
            self.storage.incarnation, node_id=1, cluster_id="cluster-of-one-node-22"
        )
        self.broker = Broker(self.storage, placement, self.clock, BrokerConfig())
        self.queues = await QueueManager.open(
            self.broker,
            self.topics,
            self.clock,
            self.metadata,
            # Less than a config may say, so that kills meet rewrites of the journal too.
            QueueConfig.model_construct(journal_room_bytes=JOURNAL_ROOM_BYTES),
        )
        self.dead = await self.queue("dead", QueueSettings())
        settings = QueueSettings(lease_ms=LEASE_MS, attempts_max=50, dead_letter_topic="dead")
        self.work = await self.queue("work", settings)

    async def queue(self, name: str, settings: QueueSettings) -> Queue:
        topic_name = TopicName("default", name)
        found = self.queues.find(topic_name)
        if found is not None:
            return found
        topic = self.topics.find(topic_name)
        if topic is None:
            topic = await self.topics.create(topic_name, partitions=2)
        return await self.queues.create(topic, settings)

    # --- load

    async def load(self) -> None:
        say("ready")
        first = int.from_bytes(os.urandom(4), "big") << 32
        PushedWork(self.work, say, self.queues.new_holder)
        await asyncio.gather(self.send(first), self.work_on(), self.work_on())

    async def send(self, first: int) -> None:
        for number in count(first, SENT_AT_ONCE):
            kept = asyncio.get_running_loop().create_future()
            some = [b"%d" % one for one in range(number, number + SENT_AT_ONCE)]
            run = RecordRun(None, some, NO_HEADERS, self.clock.unix_ms())
            self.queues.coalescer.add(self.work.partition_for(None), run, kept.set_result)
            if await kept is None:
                for one in range(number, number + SENT_AT_ONCE):
                    say("sent", one)

    async def work_on(self) -> None:
        """Acknowledge most, reject some, forget a few (their lease ends)."""
        while True:
            got = await self.receive(self.work, WAIT_MS)
            items: list[tuple[DeliveryId, Outcome]] = []
            for one in got:
                number = int(one.record.value or b"")
                say("got", number, one.attempt)
                if number % 10 == 3:
                    items.append((one.delivery_id, Outcome.REJECT))
                elif number % 10 != 7 or one.attempt > 1:
                    items.append((one.delivery_id, Outcome.ACK))
            if items:
                await self.settle(got, items)

    async def receive(self, queue: Queue, wait_ms: int) -> list[Delivery]:
        got: asyncio.Future[list[Delivery]] = asyncio.get_running_loop().create_future()
        queue.receive(10, bytes_max=1 << 20, wait_ms=wait_ms, on_done=got.set_result)
        return await got

    async def settle(
        self, got: Sequence[Delivery], items: Sequence[tuple[DeliveryId, Outcome]]
    ) -> None:
        numbers = {one.delivery_id: int(one.record.value or b"") for one in got}
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settled(results: list[Result], error: StorageUnavailable | None) -> None:
            for (delivery_id, outcome), result in zip(items, results, strict=True):
                if result is Result.DONE and error is None:
                    word = "acked" if outcome is Outcome.ACK else "moved"
                    say(word, numbers[delivery_id])
            kept.set_result(None)

        self.work.settle(items, settled)
        await kept

    async def hold(self) -> None:
        run = RecordRun(None, (b"1", b"2", b"3"), NO_HEADERS, self.clock.unix_ms())
        self.queues.coalescer.add(self.work.partition_for(None), run, lambda _: None)
        got = await self.receive(self.work, 10 * WAIT_MS)
        await self.settle(got, [(got[0].delivery_id, Outcome.ACK)])
        say("held")
        await asyncio.get_running_loop().create_future()

    async def redrive(self) -> None:
        """Send messages once; then they only go round."""
        say("ready")
        if sum(self.work.counts()) + sum(self.dead.counts()) == 0:
            some = [b"%d" % one for one in range(ROUND_COUNT)]
            run = RecordRun(None, some, NO_HEADERS, self.clock.unix_ms())
            kept = asyncio.get_running_loop().create_future()
            self.queues.coalescer.add(self.work.partition_for(None), run, kept.set_result)
            await kept
        while True:
            for one in await self.receive(self.work, 50):
                # One that goes round too often would be dropped: it stays where it is.
                if hops_of(one.record.headers) < HOPS_MAX - 3:
                    await self.settle([one], [(one.delivery_id, Outcome.REJECT)])
            if not any(one.is_active for one in self.queues.redrives.of(self.dead)):
                self.queues.redrives.start(self.dead, destination=None, rate_per_s=None)

    # --- the end

    async def drain(self) -> None:
        for queue, word in ((self.work, "left"), (self.dead, "dead")):
            while queue.counts() != (0, 0, 0):
                got = await self.receive(queue, WAIT_MS)
                for one in got:
                    say(word, int(one.record.value or b""), one.attempt)
                items = [(one.delivery_id, Outcome.ACK) for one in got]
                if items:
                    kept: asyncio.Future[object] = asyncio.get_running_loop().create_future()
                    queue.settle(items, lambda *answer, kept=kept: kept.set_result(answer))
                    await kept
        say("end")


async def main() -> None:
    folder, flush, what = sys.argv[1:]
    node = Node(Path(folder), flush)
    await node.open()
    await {"load": node.load, "hold": node.hold, "redrive": node.redrive, "drain": node.drain}[
        what
    ]()


if __name__ == "__main__":
    uvloop.run(main())
