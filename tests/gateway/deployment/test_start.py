"""A config file at a start: made once, enforced if it says so, and compared with the node."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.deployment.current import current
from gateway.deployment.start import drift, enforce
from gateway.exchanges.model import ExchangeName
from gateway.kernel import Kernel
from gateway.model import TopicName
from tests.gateway.admin.kernel_with_admin import running_admin

FILE = (
    'topics=[{name = "orders", partitions = 2, configs = {"retention.ms" = 5000}}]',
    'queues=[{name = "work", lease_ms = 7000, dead_letter_topic = "work-dead"}]',
    'exchanges=[{name = "events", type = "topic"}]',
    'bindings=[{source = "events", topic = "work", routing_key = "a.*"}]',
)
EVENTS = ExchangeName("default", "events")
ORDERS, WORK = TopicName("default", "orders"), TopicName("default", "work")


@asynccontextmanager
async def started(data_dir: Path, *assignments: str) -> AsyncIterator[Kernel]:
    """Start a node as ``gateway.main`` does."""
    async with running_admin(data_dir, *assignments) as setup:
        if setup.kernel.settings.enforces:
            await enforce(setup.kernel)
        yield setup.kernel


async def change(kernel: Kernel) -> None:
    """Change a topic and a queue, as a command would."""
    await kernel.topics.alter_configs(ORDERS, {"retention.ms": "6000", "segment.ms": "9"})
    queue = kernel.queues.find(WORK)
    assert queue is not None
    changed = queue.settings.model_copy(update={"lease_ms": 8_000, "attempts_max": 3})
    await kernel.queues.alter(queue, settings=changed)


async def test_a_second_start_from_one_file_changes_nothing(tmp_path: Path) -> None:
    for mode in ("create", "enforce"):
        async with started(tmp_path / mode, f"node.declared={mode}", *FILE) as kernel:
            before = current(kernel, "default", secrets=True)
            uuids = {topic.name: topic.uuid for topic in kernel.topics.everything()}
            changed = [queue.changed_unix_ms for queue in kernel.queues.of_clients()]
            assert drift(kernel) == []
        async with started(tmp_path / mode, f"node.declared={mode}", *FILE) as kernel:
            assert current(kernel, "default", secrets=True) == before
            assert {topic.name: topic.uuid for topic in kernel.topics.everything()} == uuids
            assert [queue.changed_unix_ms for queue in kernel.queues.of_clients()] == changed


async def test_with_create_a_change_stays_and_is_drift(tmp_path: Path) -> None:
    async with started(tmp_path, *FILE) as kernel:
        await change(kernel)
    async with started(tmp_path, *FILE) as kernel:
        assert kernel.topics.get(ORDERS).configs["retention.ms"] == "6000"
        assert [(one.kind, one.name, one.details) for one in drift(kernel)] == [
            ("topic", "orders", ("retention.ms 6000 to 5000",)),
            ("queue", "work", ("lease_ms 8000 to 7000",)),
        ]


async def test_with_enforce_a_start_restores_what_the_file_says(tmp_path: Path) -> None:
    async with started(tmp_path, *FILE) as kernel:
        await change(kernel)
    async with started(tmp_path, "node.declared=enforce", *FILE) as kernel:
        assert kernel.topics.get(ORDERS).configs == {"retention.ms": "5000", "segment.ms": "9"}
        queue = kernel.queues.find(WORK)
        assert queue is not None
        assert (queue.settings.lease_ms, queue.settings.attempts_max) == (7_000, 3)
        assert drift(kernel) == []


async def test_one_entry_can_be_enforced_alone(tmp_path: Path) -> None:
    async with started(tmp_path, *FILE) as kernel:
        await change(kernel)
    enforced = FILE[1].replace("lease_ms", 'declared = "enforce", lease_ms')
    async with started(tmp_path, FILE[0], enforced, *FILE[2:]) as kernel:
        assert [one.name for one in drift(kernel)] == ["orders"]


async def test_an_enforced_exchange_gets_the_alternate_of_the_file(tmp_path: Path) -> None:
    other = FILE[2].replace('"topic"', '"topic", alternate = "rest"')
    async with started(tmp_path, *FILE) as kernel:
        assert kernel.exchanges.binding_count == 1
    enforced = other.replace("type", 'declared = "enforce", type')
    async with started(tmp_path, *FILE[:2], enforced, FILE[3]) as kernel:
        exchange = kernel.exchanges.find(EVENTS)
        assert exchange is not None
        assert (exchange.alternate, kernel.exchanges.binding_count) == ("rest", 1)
        assert drift(kernel) == []
    async with started(tmp_path, *FILE[:2], enforced, FILE[3]) as kernel:  # it was stored
        exchange = kernel.exchanges.find(EVENTS)
        assert exchange is not None
        assert exchange.alternate == "rest"


async def test_a_topic_that_cannot_shrink_does_not_stop_the_start(tmp_path: Path) -> None:
    async with started(tmp_path, *FILE) as kernel:
        await kernel.topics.add_partitions(ORDERS, 3)
    async with started(tmp_path, "node.declared=enforce", *FILE) as kernel:
        assert len(kernel.topics.get(ORDERS).partition_ids) == 3
        (one,) = drift(kernel)
        assert one.details == ("partitions 3 to 2", "a topic keeps its partitions")
