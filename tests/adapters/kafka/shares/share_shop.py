"""A node with one topic, and a share group that reads it from its start."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from gateway.clock import ManualClock
from gateway.groups.model import GroupName
from gateway.model import TopicName
from gateway.shares.group_configs import OFFSET_RESET
from tests.adapters.kafka.running_adapter import Live, produce, running
from tests.support.batches import sample_batch
from tests.support.kafka_wire import produce_errors
from tests.support.share_groups import ShareMember

ORDERS = TopicName("default", "orders")
GROUP = GroupName("default", "g")


class Shop:
    """A node with the topic ``orders``, and a member of the group ``g`` that reads it."""

    def __init__(self, live: Live, member: ShareMember) -> None:
        self.live = live
        self.member = member

    @property
    def topic_id(self) -> UUID:
        return self.live.kernel.topics.get(ORDERS).uuid

    @property
    def clock(self) -> ManualClock:
        clock = self.live.kernel.clock
        assert isinstance(clock, ManualClock)
        return clock

    def part(self, number: int = 0) -> tuple[UUID, int]:
        return self.topic_id, number

    async def append(self, count: int = 1, *, number: int = 0, **batch: Any) -> None:
        """Append one batch of ``count`` records."""
        client = await self.live.client()
        client.send(produce(1, sample_batch(count=count, **batch), number=number))
        assert produce_errors((await client.answer())[1])[0][0] == 0

    async def second(self, member_id: str = "n") -> ShareMember:
        member = ShareMember(await self.live.client(), member_id=member_id)
        await member.beat("orders")
        return member

    def floor(self, number: int = 0) -> int:
        queue = self.live.kernel.queues.find(ORDERS, "g")
        assert queue is not None
        return queue.lanes[number].lane.floor


@asynccontextmanager
async def shop(tmp_path: Path, **configs: str) -> AsyncIterator[Shop]:
    async with running(tmp_path, has_groups=True, partitions=1) as live:
        values = {OFFSET_RESET: "earliest", **configs}
        await live.adapter.node.shares.alter_configs(GROUP, values)
        member = ShareMember(await live.client())
        answer = await member.beat("orders")
        assert answer.error_code.value == 0
        yield Shop(live, member)
