"""The whole storage over a database that hangs, or is slow: who waits, and for how long."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import make_url
from structlog.testing import capture_logs

from gateway.errors import StorageUnavailable
from gateway.storage import Bounds
from gateway.testing.storage import append, make_batch, make_entry
from storage_adapters.s3.adapter import S3Storage
from storage_adapters.s3.index import Index
from tests.gateway import postgres
from tests.storage_adapters.s3.index.cutting_proxy import Cut, CuttingProxy, proxied
from tests.storage_adapters.s3.s3_nodes import NodeBucket, place

__all__ = ["place"]  # a fixture

WITHIN_S = 60


@pytest.fixture
def database() -> Iterator[tuple[str, CuttingProxy]]:
    """Give a PostgreSQL's URL that leads through a proxy."""
    reason = postgres.missing()
    if reason is not None:
        pytest.skip(reason)
    with postgres.running_postgres() as found:
        url = make_url(found)
        assert url.host is not None
        assert url.port is not None
        with proxied(url.host, url.port) as proxy:
            yield url.set(port=proxy.port).render_as_string(hide_password=False), proxy


def _enqueue(
    storage: S3Storage, *targets: tuple[int, int]
) -> "asyncio.Future[StorageUnavailable | None]":
    done = asyncio.get_running_loop().create_future()
    storage.enqueue([make_entry(target) for target in targets], done.set_result)
    return done


async def test_a_commit_that_was_done_unheard_is_acknowledged(
    place: NodeBucket, database: tuple[str, CuttingProxy]
) -> None:
    url, proxy = database
    await (await place.open(url)).close()  # to make tables may take longer
    storage = await place.open(url, database_timeout_ms=2_000)
    proxy.cut = Cut.SILENT_AFTER

    with capture_logs() as lines:
        done = _enqueue(storage, (1, 0))
        async with asyncio.timeout(WITHIN_S):
            while not lines:  # noqa: ASYNC110 - it is what a look at the log would show
                await asyncio.sleep(0)
    proxy.is_passing.set()

    try:
        assert await asyncio.wait_for(done, WITHIN_S) is None
        assert (storage.bounds(1), len(storage._catalog.objects)) == (Bounds(0, 1), 1)
        assert {line["event"] for line in lines} == {"the database went while it committed"}
    finally:
        await storage.close()


async def test_a_stop_does_not_wait_for_a_database_that_hangs(
    place: NodeBucket, database: tuple[str, CuttingProxy]
) -> None:
    url, proxy = database
    storage = await place.open(url, close_ms_max=200, database_timeout_ms=600_000)
    proxy.cut = Cut.SILENT_BEFORE
    done = _enqueue(storage, (1, 0))
    await _until_set(proxy, is_passing=False)

    closing = asyncio.create_task(storage.close())

    try:
        await asyncio.wait([closing], timeout=WITHIN_S)
        assert closing.done()
    finally:
        proxy.is_passing.set()
        await closing
    assert isinstance(await done, StorageUnavailable)  # nobody knows


async def test_a_slow_look_up_delays_no_acknowledgement(
    place: NodeBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await place.open()
    await append(first, make_entry((1, 0)))
    await first.close()
    storage = await place.open()  # nothing is cached
    rows = Index.rows
    is_asked, may_answer = threading.Event(), threading.Event()

    def slow_rows(index: Index, number: int) -> bytes | None:
        is_asked.set()
        may_answer.wait(WITHIN_S)
        return rows(index, number)

    monkeypatch.setattr(Index, "rows", slow_rows)
    reading = asyncio.create_task(storage.read(1, 0, 1, bytes_max=1_000))
    await asyncio.to_thread(is_asked.wait, WITHIN_S)

    try:
        await asyncio.wait_for(append(storage, make_entry((1, 1))), WITHIN_S / 2)
        assert not reading.done()
    finally:
        may_answer.set()
    assert [bytes(batch) for batch in await reading] == [make_batch(0)]
    await storage.close()


async def _until_set(proxy: CuttingProxy, *, is_passing: bool) -> None:
    async with asyncio.timeout(WITHIN_S):
        while proxy.is_passing.is_set() is not is_passing:  # noqa: ASYNC110 - threads'
            await asyncio.sleep(0)
