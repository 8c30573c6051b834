"""From a sealed group to its answers: in order, all of them, and no more than is committed."""

import asyncio
import weakref
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from structlog.testing import capture_logs

from gateway.clock import ManualClock
from gateway.errors import StorageUnavailable
from gateway.testing.storage import make_entry
from storage_adapters.formats.segment import SEGMENT_HEADER_BYTES, decode_segment_header
from storage_adapters.s3.appender import Appender, Group
from storage_adapters.s3.bucket import Bucket
from storage_adapters.s3.committer import Committer
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.index import Index
from storage_adapters.s3.objects import Part
from storage_adapters.s3.state import Catalog, object_key
from storage_adapters.s3.uploader import Uploaded, Uploader
from tests.support.s3_proxy import Answer, Hang, S3Proxy
from tests.support.s3_servers import S3Server
from tests.support.waiting import until

MISTAKEN = 13  # whose callback raises


class MergingSetup:
    """An appender and an uploader on a real bucket and a real index, and nothing to read."""

    def __init__(self, config: S3Config, folder: Path) -> None:
        self.config = config
        self.clock = ManualClock(unix_ms=1_000_000)
        self.faults: list[BaseException] = []
        self.answers: list[tuple[int, StorageUnavailable | None]] = []
        self.published = 0
        self.describe_error: Exception | None = None
        self.publish_error: Exception | None = None
        self.bucket = Bucket(config, self.clock)
        index = Index(f"sqlite:///{folder}/metadata.sqlite", clock=self.clock)
        index.open()
        owned = index.take_over(1, reserve=8)
        self._numbers = list(owned.reserved)
        self.committer = Committer(
            index,
            epoch=owned.epoch,
            reserved=owned.reserved,
            reserve=8,
            on_fault=self.faults.append,
        )
        self.uploader = Uploader(
            config,
            self.bucket,
            self.committer,
            self.clock,
            data_uuid=UUID(int=7),
            describe=self._describe,
            publish=self._publish,
            finished=self._finished,
        )
        self.appender = Appender(
            config, Catalog(), next_sequence=owned.next_sequence, on_sealed=self.uploader.add
        )

    def append(self, number: int, *, size_bytes: int = 100) -> None:
        """Append to a partition of its own; its answer is noted."""
        entry = make_entry((number, 0), size_bytes=size_bytes)
        self.appender.append([entry], partial(self._note, number), reserved=False)

    def append_group(self, *numbers: int) -> None:
        """Append, and let it be an object."""
        for number in numbers:
            self.append(number)
        self.appender.seal()

    def key_of(self, at: int) -> str:
        """Return the key of the first, second ... object."""
        return object_key(self.config.prefix, self._numbers[at], self.committer.epoch)

    async def answered(self, count: int) -> list[int]:
        """Return who was answered, once so many were."""
        await until(lambda: len(self.answers) >= count)
        return [number for number, _ in self.answers]

    async def close(self) -> None:
        await self.uploader.drain(100)
        await self.uploader.stop()
        await self.committer.stop()
        self.bucket.close()

    def _finished(self, group: Group) -> None:
        self.appender.finished(group)

    def _note(self, number: int, error: StorageUnavailable | None) -> None:
        self.answers.append((number, error))
        if number == MISTAKEN:
            raise ValueError("a mistake of the caller's")

    def _describe(self, group: Group) -> dict[int, Part]:
        if self.describe_error is not None:
            raise self.describe_error
        ids = {target.partition_id for entry in group.entries for target in entry.targets}
        return {one: Part(0, 1, is_deleted=False, introduction=None) for one in ids}

    def _publish(self, uploads: list[Uploaded]) -> None:
        if self.publish_error is not None:
            raise self.publish_error
        self.published += len(uploads)


@pytest.fixture
async def setup(
    proxy: S3Proxy, server: S3Server, tmp_path: Path
) -> AsyncIterator[MergingSetup]:
    config = S3Config(
        bucket=server.bucket,
        prefix=f"{uuid4().hex}/",
        endpoint_url=proxy.url,
        flush_interval_ms=60_000,
        request_timeout_ms=30_000,  # what hangs hangs until its rule is off
        retry_ms_max=0,
        multipart_bytes=5 << 20,
    )
    setup = MergingSetup(config, tmp_path)
    yield setup
    await setup.close()


async def test_answers_come_in_the_order_of_calls(setup: MergingSetup) -> None:
    setup.append_group(*range(100, 2_000))
    setup.append_group(2_000)

    assert await setup.answered(1_901) == list(range(100, 2_001))
    assert {error for _, error in setup.answers} == {None}
    assert setup.appender.queued_bytes == 0


async def test_each_object_says_how_much_its_owner_put_before_it(setup: MergingSetup) -> None:
    for group in [1], [2, 3], [4]:
        setup.append_group(*group)
    await setup.answered(4)

    heads = [setup.bucket.get(setup.key_of(at), 0, SEGMENT_HEADER_BYTES) for at in range(3)]
    headers = [decode_segment_header(head) for head in heads]
    assert [header.previous for header in headers] == [0, 1, 3]
    assert [header.first_sequence for header in headers] == [1, 2, 4]


async def test_a_callers_mistake_costs_nobody_his_answer_nor_its_place(
    setup: MergingSetup,
) -> None:
    setup.uploader._finish([_group_of(setup, 1, MISTAKEN, 3)], None)
    setup.uploader._finish([_group_of(setup, 4)], None)

    assert await setup.answered(4) == [1, MISTAKEN, 3, 4]


async def test_many_answers_leave_others_their_turns(setup: MergingSetup) -> None:
    setup.append_group(*range(100, 5_100))
    await setup.answered(1)

    assert len(setup.answers) < 5_000
    await setup.answered(5_000)


async def test_a_stop_answers_all(setup: MergingSetup) -> None:
    setup.append_group(*range(100, 5_100))

    await setup.uploader.drain(20_000)

    assert len(setup.answers) == 5_000


async def test_what_cannot_be_described_is_answered_and_stops_the_node(
    setup: MergingSetup,
) -> None:
    setup.describe_error = ValueError("ours")

    setup.append_group(1, 2)
    setup.describe_error = None
    setup.append_group(3)

    assert await setup.answered(3) == [1, 2, 3]
    assert all(error is not None for _, error in setup.answers)
    assert len(setup.faults) == 1
    assert setup.published == setup.appender.queued_bytes == 0


async def test_a_mistake_after_a_commit_leaves_nobody_without_an_answer(
    setup: MergingSetup,
) -> None:
    setup.publish_error = ValueError("ours")

    setup.append_group(1, 2)

    assert await setup.answered(2) == [1, 2]
    assert all(error is not None for _, error in setup.answers)
    assert (len(setup.faults), setup.appender.queued_bytes) == (1, 0)


async def test_a_slow_bucket_is_not_one_that_is_away(
    setup: MergingSetup, proxy: S3Proxy
) -> None:
    rule = proxy.add(Answer(503, "SlowDown"), method="PUT", key=setup.key_of(1))
    setup.append_group(1)
    setup.append_group(2)
    setup.clock.advance(8_000)
    assert setup.uploader.waits_ms == 8_000

    await setup.answered(1)

    assert setup.uploader.waits_ms == 0
    setup.clock.advance(3_000)
    assert setup.uploader.waits_ms == 3_000
    rule.off()
    assert await setup.answered(2) == [1, 2]


async def test_an_upload_that_the_server_forgot_is_begun_anew(
    setup: MergingSetup, proxy: S3Proxy
) -> None:
    rule = proxy.add(
        Answer(404, "NoSuchUpload"), method="PUT", key=setup.config.prefix, times=1
    )
    setup.append(1, size_bytes=6 << 20)
    setup.appender.seal()

    await setup.answered(1)

    assert (setup.answers, setup.faults, rule.hits) == ([(1, None)], [], 1)


async def test_the_loop_goes_on_while_a_request_hangs_at_a_stop(
    setup: MergingSetup, proxy: S3Proxy
) -> None:
    rule = proxy.add(Hang(), method="PUT", key=setup.config.prefix)
    setup.append_group(1)
    await until(lambda: rule.hits == 1)
    setup.uploader._fail(StorageUnavailable("a commit before it failed"))
    await setup.answered(1)

    stopping = asyncio.create_task(setup.uploader.stop())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not stopping.done()  # else the loop stood until the request timed out
    rule.off()
    await stopping
    assert rule.hits == 1


def _group_of(setup: MergingSetup, *numbers: int) -> Group:
    group = Group(0)
    group.callbacks += [partial(setup._note, number) for number in numbers]
    return group


async def test_a_bucket_that_refuses_is_told_of_once_and_when_it_is_back(
    setup: MergingSetup, proxy: S3Proxy
) -> None:
    rule = proxy.add(Answer(403, "AccessDenied"), method="PUT", key=setup.config.prefix)
    with capture_logs() as lines:
        setup.append_group(1)
        setup.append_group(2)
        await until(lambda: rule.hits >= 6)
        rule.off()
        await setup.answered(2)

    said = [line["event"] for line in lines if "the bucket" in line["event"]]
    assert said == ["the bucket is away", "the bucket is back"]


async def test_what_waits_for_the_database_is_in_memory_once(setup: MergingSetup) -> None:
    entry = make_entry((1, 0), size_bytes=10_000)
    batch = Batch(entry.batch)
    is_held = weakref.ref(batch)
    entry = entry._replace(batch=batch)
    del batch
    await setup.committer._turn.acquire()  # as while the database is away

    setup.appender.append([entry], partial(setup._note, 1), reserved=False)
    setup.appender.seal()
    del entry
    await until(lambda: setup.uploader.metrics.objects == 1)

    assert is_held() is None
    setup.committer._turn.release()
    assert await setup.answered(1) == [1]


class Batch(bytearray):
    """Bytes of which one can see whether anybody has them."""

    __slots__ = ("__weakref__",)
