"""Queues of the config at a start; and queues after a lost metadata store, and in a backup."""

import asyncio
from pathlib import Path

import pytest

from features.queue.model import Order
from gateway.backup.create import Backups, BackupState
from gateway.cli.app import main
from gateway.config.base import InvalidSettings
from gateway.kernel import Kernel
from gateway.metadata.sql import FILE_NAME
from gateway.model import TopicName
from gateway.queues.create_queue import QUEUE_TOPIC_CONFIGS
from gateway.queues.manager import Queue
from gateway.queues.model import Outcome, QueueSettings
from gateway.records.codec import NO_HEADERS
from gateway.records.record_run import RecordRun
from tests.gateway.admin.kernel_with_admin import running_admin
from tests.gateway.queues.clients import found, send, settle, take

WORK = 'queues=[{name = "work", partitions = 3, dead_letter_topic = "dead", lease_ms = 5}]'


async def test_a_queue_is_made_with_its_topic_and_that_of_its_dead_letters(
    tmp_path: Path,
) -> None:
    async with running_admin(tmp_path, WORK) as setup:
        work, dead = found(setup.kernel, "work"), found(setup.kernel, "dead")

    assert work.settings == QueueSettings(dead_letter_topic="dead", lease_ms=5)
    assert (len(work.lanes), len(dead.lanes)) == (3, 1)
    assert work.topic.configs == QUEUE_TOPIC_CONFIGS
    assert work.owns_topic
    assert dead.owns_topic


async def test_a_queue_on_a_topic_that_is_there_does_not_own_it(tmp_path: Path) -> None:
    async with running_admin(tmp_path) as setup:
        await setup.kernel.topics.create(TopicName("default", "work"), partitions=2)

    async with running_admin(tmp_path, WORK) as setup:
        work = found(setup.kernel, "work")

    assert (len(work.lanes), work.owns_topic, work.topic.configs) == (2, False, {})


async def test_a_queue_that_is_there_keeps_what_it_was_given(tmp_path: Path) -> None:
    changed = QueueSettings(lease_ms=77)
    async with running_admin(tmp_path, WORK) as setup:
        await setup.kernel.queues.alter(found(setup.kernel, "work"), settings=changed)

    async with running_admin(tmp_path, WORK) as setup:
        assert found(setup.kernel, "work").settings == changed
        assert len(setup.kernel.queues.of_clients()) == 2


@pytest.mark.parametrize(
    ("queues", "words"),
    [
        ('{name = "a/b"}', r"queues\[0\].name: .*not 'a/b'"),
        ('{name = "jobs.fifo"}', r"queues.jobs.fifo: .*has the order key"),
        ('{name = "__queues"}', "queues.__queues: .*is internal"),
        ('{name = "a", dead_letter_topic = "d/"}', r"dead_letter_topic: .*not 'd/'"),
    ],
)
async def test_a_queue_that_cannot_be_is_one_line_with_its_name(
    tmp_path: Path, queues: str, words: str
) -> None:
    with pytest.raises(InvalidSettings, match=words):
        async with running_admin(tmp_path, f"queues=[{queues}]"):
            pass


async def used(kernel: Kernel, name: str, *, settings: QueueSettings) -> Queue:
    """Return a queue with four messages, of which one is settled and one in flight."""
    topic = await kernel.topics.create(TopicName("default", name), partitions=1)
    queue = await kernel.queues.create(topic, settings, owns_topic=True)
    await send(kernel, queue, b"1", b"2", b"3", key=b"k")
    first, *_ = await take(queue, 1)
    await settle(queue, [first.delivery_id], Outcome.ACK, "")
    await take(queue, 1)
    await send(kernel, queue, b"4", key=b"k")  # kept, and so is what was written before
    return queue


async def test_what_was_handed_in_last_is_kept_by_a_stop(tmp_path: Path) -> None:
    ended: list[object] = []
    async with running_admin(tmp_path, WORK) as setup:
        kernel, queue = setup.kernel, found(setup.kernel, "work")
        await send(kernel, queue, b"1", b"2", key=b"k")
        first, *_ = await take(queue, 1)
        run = RecordRun(b"k", (b"3",), NO_HEADERS, 1)
        later_unix_ms = kernel.clock.unix_ms() + 3_600_000
        later = RecordRun(b"k", (b"4",), NO_HEADERS, 1)
        later.deliver_at_unix_ms = later_unix_ms
        kernel.queues.coalescer.add(queue.partition_for(b"k"), later, ended.append)
        acked = [(first.delivery_id, Outcome.ACK)]
        queue.settle(acked, lambda _results, error: ended.append(error))
        kernel.queues.coalescer.add(queue.partition_for(b"k"), run, ended.append)

    assert ended == [None, None, None]
    async with running_admin(tmp_path, WORK) as setup:
        queue = found(setup.kernel, "work")
        assert queue.counts() == (2, 0, 0)
        assert setup.kernel.delays.count(queue.topic) == 1


async def test_who_waits_for_a_message_is_answered_when_the_node_stops(tmp_path: Path) -> None:
    answers: list[object] = []
    async with running_admin(tmp_path, WORK) as setup:
        queue = found(setup.kernel, "work")
        queue.receive(1, bytes_max=1_000, on_done=answers.append, wait_ms=60_000)
        assert answers == []

    assert answers == [[]]


async def test_queues_hold_what_they_need_as_soon_as_a_node_has_started(tmp_path: Path) -> None:
    async with running_admin(tmp_path, WORK) as setup:
        await send(setup.kernel, found(setup.kernel, "work"), b"1", b"2", key=b"k")

    async with running_admin(tmp_path, WORK) as setup:
        holders = setup.kernel.broker.holders
        held = [holders.of(one) for one in found(setup.kernel, "work").topic.partition_ids]
        assert [[(hold.name, hold.offset) for hold in holds] for holds in held] == [
            [("queue:@queue", 0)]
        ] * 3


def lose_store(data_dir: Path) -> None:
    for file in data_dir.glob(f"{FILE_NAME}*"):
        file.unlink()


async def test_queues_stand_where_they_stood_after_the_store_was_lost(tmp_path: Path) -> None:
    settings = QueueSettings(order=Order.KEY, lease_ms=3_600_000, attempts_max=9)
    async with running_admin(tmp_path) as setup:
        await used(setup.kernel, "jobs.fifo", settings=settings)
    lose_store(tmp_path)

    arguments = ["recover-metadata", "--yes", "--set", f"node.data_dir={tmp_path}"]
    assert await asyncio.to_thread(main, arguments) == 0

    async with running_admin(tmp_path) as setup:
        queue = found(setup.kernel, "jobs.fifo")
        assert queue.counts() == (2, 1, 0)
        assert queue.settings == QueueSettings(order=Order.KEY)
        assert not queue.owns_topic


async def test_queues_are_in_a_backup(tmp_path: Path) -> None:
    settings = QueueSettings(lease_ms=3_600_000, attempts_max=9)
    target, elsewhere = tmp_path / "backup", tmp_path / "elsewhere"
    async with running_admin(tmp_path / "data") as setup:
        await used(setup.kernel, "work", settings=settings)
        key = await setup.kernel.access_keys.add("alice")
        backups = Backups()
        backups.start(setup.kernel, target)
        await backups.wait(60)
        assert backups.state is BackupState.DONE, backups.error

    assert await asyncio.to_thread(main, ["restore", str(target), str(elsewhere)]) == 0

    async with running_admin(elsewhere) as setup:
        queue = found(setup.kernel, "work")
        assert (queue.counts(), queue.settings) == ((2, 1, 0), settings)
        assert queue.owns_topic
        assert setup.kernel.access_keys.keys() == [key]
