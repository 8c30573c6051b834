"""Due messages for queues that are full: they wait, and hold up no others."""

from typing import cast

from gateway.append_limits import AppendLimit
from gateway.errors import QueueFull
from tests.gateway.delays.delay_node import World


async def test_full_queue_in_memory_puts_off_its_own_messages_only(world: World) -> None:
    full = await world.topic("full", cleanup_policy="queue", storage_class="memory")
    other = await world.topic("other")
    await world.put(full, 1_000, b"q1")
    await world.put(other, 1_000, b"o")
    await world.topics.alter_configs(full.name, {"memory.bytes.max": "0"})
    await world.broker_append(full, b"there")

    world.advance(1_000)
    await world.settled()
    between = world.values(other)
    await world.topics.alter_configs(full.name, {"memory.bytes.max": "1000000"})
    world.advance(1_000)
    await world.settled()

    assert between == [b"o"]
    assert world.values(full) == [b"there", b"q1"]


class LargestOf:
    """A queue with room for some bytes that nobody has used yet."""

    def __init__(self, size_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max

    def check(self, size_bytes: int) -> None:
        if size_bytes > self._size_bytes_max:
            raise QueueFull("no room")


async def test_due_messages_have_room_one_by_one_in_a_queue_that_refuses(world: World) -> None:
    topic = await world.topic("full", cleanup_policy="queue")
    limit = cast("AppendLimit", LargestOf(500))
    world.broker.append_limits[world.partition(topic).partition_id] = limit
    await world.put(topic, 1_000, *[bytes(100)] * 20)

    world.advance(1_000)
    await world.settled()

    assert world.values(topic) == [bytes(100)] * 20
