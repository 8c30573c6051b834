"""Names that an archive gives its table at the node, and its output when the node refuses one."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from gateway.cli.pipeline_hold import begin_hold
from gateway.kernel import Kernel
from gateway.model import PartitionIdentity, TopicName
from gateway.records.codec import encode_batch
from gateway.topics.manager import Topic
from gateway.writer import Write
from tests.gateway.admin.kernel_with_admin import Setup, running_admin, settings_for
from tests.gateway.kernel_in_memory import outcome

ORDERS = TopicName("default", "orders")


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[Setup]:
    async with running_admin(tmp_path) as running:
        yield running


def identity(topic: Topic, number: int = 0) -> PartitionIdentity:
    return PartitionIdentity(topic.partition_ids[number], topic.uuid, topic.name, number)


async def filled(kernel: Kernel, *, group: str, partitions: int = 1) -> Topic:
    """Return a topic of seven records in each partition, which waits for ``group``."""
    topic = await kernel.topics.create(
        ORDERS, partitions=partitions, configs={"archive.hold": group}
    )
    for number in range(partitions):
        records = [(kernel.clock.unix_ms(), None, b"x", ())] * 7
        partition = kernel.broker.partition(topic, number)
        write = kernel.broker.prepare(partition, encode_batch(records))
        assert isinstance(write, Write)
        assert await outcome(partial(kernel.broker.append, [write])) is None
    return topic


def held(setup: Setup, topic: Topic) -> list[int | None]:
    return [setup.kernel.broker.holders.lowest(one) for one in topic.partition_ids]


async def test_a_hold_is_where_the_table_is(
    setup: Setup, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = await filled(setup.kernel, group="archive.lake", partitions=2)
    starts = {identity(topic): 4, identity(topic, 1): None}
    begin = partial(begin_hold, settings_for(setup.data_dir), "lake", starts, holds=True)

    post = await asyncio.to_thread(begin)
    assert held(setup, topic) == [4, 0]
    await asyncio.to_thread(post, {identity(topic, 1): 7})
    assert held(setup, topic) == [4, 7]
    await asyncio.to_thread(begin)  # a table that was made anew needs what is there
    assert held(setup, topic) == [4, 0]

    assert capsys.readouterr().err == ""


async def test_nothing_is_posted_unless_asked(
    setup: Setup, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = await filled(setup.kernel, group="archive.lake")
    settings, starts = settings_for(setup.data_dir), {identity(topic): 4}

    post = await asyncio.to_thread(partial(begin_hold, settings, "lake", starts, holds=False))
    await asyncio.to_thread(post, {identity(topic): 4})

    assert held(setup, topic) == [0]
    assert capsys.readouterr().err == ""


async def test_a_topic_that_does_not_wait_is_named_with_what_to_do(
    setup: Setup, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = await filled(setup.kernel, group="archive.other")
    settings, starts = settings_for(setup.data_dir), {identity(topic): 4}

    await asyncio.to_thread(partial(begin_hold, settings, "lake", starts, holds=True))

    assert capsys.readouterr().err == (
        "headgate: orders does not wait for this archive: "
        "`headgate topics alter orders -c archive.hold=archive.lake`\n"
    )
    assert held(setup, topic) == [0]


async def test_a_partition_that_is_refused_does_not_stop_the_others(
    setup: Setup, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = await filled(setup.kernel, group="archive.lake", partitions=2)
    settings, starts = (
        settings_for(setup.data_dir),
        {identity(topic): 99, identity(topic, 1): 5},
    )

    await asyncio.to_thread(partial(begin_hold, settings, "lake", starts, holds=True))

    assert held(setup, topic) == [0, 5]
    (line,) = capsys.readouterr().err.splitlines()
    assert "the hold of archive.lake stays where it was: OffsetOutOfRange" in line


async def test_the_topic_of_another_uuid_is_not_moved(
    setup: Setup, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = await filled(setup.kernel, group="archive.lake")
    starts = {identity(topic)._replace(topic_uuid=uuid4()): 5}
    settings = settings_for(setup.data_dir)

    await asyncio.to_thread(partial(begin_hold, settings, "lake", starts, holds=True))

    assert held(setup, topic) == [0]
    assert "not the one with the uuid" in capsys.readouterr().err


def test_a_node_that_is_away_is_one_line_however_often_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = PartitionIdentity(1, uuid4(), ORDERS, 0)

    post = begin_hold(settings_for(tmp_path), "lake", {one: 5}, holds=True)
    post({one: 6})
    post({one: 7})

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("headgate: the hold of archive.lake stays where it was: no token in")
