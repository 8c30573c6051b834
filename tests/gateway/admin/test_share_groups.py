"""Share groups among the groups of the admin endpoint: positions, what is in flight, moves."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.admin_client import Refused
from gateway.groups.consumer.model import NO_PARTITIONS, Heartbeat, HeartbeatResult
from gateway.groups.model import GroupName
from gateway.model import TopicName
from gateway.shares.group_configs import OFFSET_RESET
from gateway.shares.manager import ShareGroups
from tests.gateway.admin.kernel_with_admin import Setup, running_admin

GROUP = GroupName("default", "workers")
ORDERS = TopicName("default", "orders")


class Shared:
    """A node with a share group of one member, which reads the topic ``orders``."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        kernel = setup.kernel
        self.shares = ShareGroups(
            kernel.groups,
            kernel.cursors,
            kernel.queues,
            kernel.topics,
            kernel.broker,
            kernel.clock,
            kernel.settings.groups,
        )

    async def beat(self, epoch: int, *names: str) -> HeartbeatResult:
        answered = asyncio.get_running_loop().create_future()
        beat = Heartbeat(
            "m-1",
            epoch,
            client_id="app",
            rebalance_timeout_ms=300_000 if names else -1,
            names=frozenset(names) or None,
            owned=NO_PARTITIONS,
        )
        self.shares.heartbeat(GROUP, beat, answered.set_result)
        result = await answered
        assert isinstance(result, HeartbeatResult), result
        return result

    async def ask(self, method: str, *path: str, **options: Any) -> Any:
        """Send a request beside the loop that answers it."""
        send = self.setup.client.send
        return await asyncio.to_thread(partial(send, method, *path, **options))

    def acquire(self, count: int) -> None:
        """Let the member have the next messages."""
        kernel = self.setup.kernel
        partition = self.shares.partition(GROUP, kernel.topics.get(ORDERS), 0)
        holder = self.shares.new_holder()
        start = partition.next_offset()
        assert start is not None
        ends = [partition.partition.stable_end - 1]
        taken = partition.acquire(start, ends, holder=holder, records_max=count, is_exact=True)
        assert sum(len(one.offsets) for one in taken) == count


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[Shared]:
    async with running_admin(tmp_path) as setup:
        await setup.kernel.topics.create(ORDERS, partitions=1)
        shared = Shared(setup)
        await shared.shares.alter_configs(GROUP, {OFFSET_RESET: "earliest"})
        await shared.beat(0, "orders")
        records = [{"value": str(number)} for number in range(5)]
        path = ("topics", "orders", "record-batch")
        await shared.ask("POST", *path, body={"records": records})
        yield shared
        await shared.shares.close()


async def test_a_share_group_is_listed_with_lag_and_what_is_in_flight(shared: Shared) -> None:
    shared.acquire(2)
    query = {"limit": "5", "sort": "-lag"}
    (row,) = (await shared.ask("GET", "groups", query=query))["groups"]
    assert row == {
        "group_id": "workers",
        "type": "share",
        "state": "Stable",
        "members": 1,
        "positions": 1,
        "lag": 5,
        "in_flight": 2,
    }
    (member,) = (await shared.ask("GET", "groups", "workers"))["members"]
    assert member["client_id"] == "app"


async def test_its_positions_are_start_offsets(shared: Shared) -> None:
    shared.acquire(2)
    (row,) = (await shared.ask("GET", "groups", "workers", "offsets"))["offsets"]
    assert [row[name] for name in ("offset", "end", "lag", "in_flight")] == [0, 5, 5, 2]
    query = {"limit": "5", "contains": "ord"}
    found = await shared.ask("GET", "groups", "workers", "offsets", query=query)
    assert (found["total"], found["offsets"][0]["in_flight"]) == (1, 2)
    assert found["offsets"][0]["behind_ms"] >= 0


async def test_start_offsets_move_while_there_is_no_member(shared: Shared) -> None:
    path, body = ("groups", "workers", "offsets"), {"topic": "orders", "to": "3"}
    with pytest.raises(Refused, match="GroupNotEmpty"):
        await shared.ask("POST", *path, body=body)
    await shared.beat(-1)
    (preview,) = (await shared.ask("POST", *path, body=body | {"dry_run": True}))["offsets"]
    assert (preview["before"], preview["offset"], preview["end"]) == (0, 3, 5)
    await shared.ask("POST", *path, body=body)
    (row,) = (await shared.ask("GET", *path))["offsets"]
    assert (row["offset"], row["lag"]) == (3, 2)
    assert shared.setup.kernel.cursors.fetch_all(GROUP) == []


async def test_a_topic_is_forgotten_and_a_group_goes_with_its_queues(shared: Shared) -> None:
    await shared.beat(-1)
    await shared.ask("DELETE", "groups", "workers", "topics", "orders")
    assert shared.setup.kernel.queues.find(ORDERS, "workers") is None
    body = {"topic": "orders", "to": "latest"}
    with pytest.raises(Refused, match="does not read orders"):
        await shared.ask("POST", "groups", "workers", "offsets", body=body)
    await shared.beat(0, "orders")
    assert shared.setup.kernel.queues.find(ORDERS, "workers") is not None
    await shared.beat(-1)
    await shared.ask("DELETE", "groups", "workers")
    assert shared.setup.kernel.queues.find(ORDERS, "workers") is None
    assert (await shared.ask("GET", "groups"))["groups"] == []
