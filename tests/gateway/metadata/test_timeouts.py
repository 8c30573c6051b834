"""A metadata database that takes bytes and says nothing: who asks is told so, and asks again."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from gateway.errors import StorageUnavailable
from gateway.metadata.sql import SqlMetadata
from gateway.sql import engines as sql
from tests.gateway.metadata.test_sql import topic_row
from tests.storage_adapters.s3.index.cutting_proxy import Cut, CuttingProxy, proxied

MS_MAX = 2_000  # more than a statement ever takes on a busy machine
WITHIN_S = 60


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[CuttingProxy]:
    url = make_url(postgres_url)
    assert url.host is not None
    assert url.port is not None
    engine = create_engine(postgres_url)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
    with proxied(url.host, url.port) as proxy:
        yield proxy


@pytest.fixture
async def store(
    postgres_url: str, proxy: CuttingProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SqlMetadata]:
    """Open one behind the proxy, whose server soon ends what a silent client leaves open."""
    monkeypatch.setattr(sql, "SILENT_TRANSACTION_MS_MAX", 500)
    url = make_url(postgres_url).set(port=proxy.port)
    url = url.update_query_dict({"connect_timeout": "2"})
    store = SqlMetadata(
        url.render_as_string(hide_password=False), data_dir=tmp_path, ms_max=MS_MAX
    )
    await store.open()
    yield store
    proxy.is_passing.set()
    await store.close()


async def test_a_statement_without_an_answer_is_given_up(
    store: SqlMetadata, proxy: CuttingProxy
) -> None:
    proxy.is_passing.clear()

    with pytest.raises(StorageUnavailable, match="no answer within 2000 ms"):
        await asyncio.wait_for(store.topics(), WITHIN_S)
    proxy.is_passing.set()

    assert await store.topics() == []


@pytest.mark.parametrize(("cut", "is_done"), [(Cut.SILENT_BEFORE, 0), (Cut.SILENT_AFTER, 1)])
async def test_who_tries_again_sees_whether_it_was_done(
    store: SqlMetadata, proxy: CuttingProxy, cut: Cut, is_done: int
) -> None:
    proxy.cut = cut

    with pytest.raises(StorageUnavailable, match="no answer within 2000 ms"):
        await asyncio.wait_for(store.create_topic(topic_row(), partitions=1), WITHIN_S)
    proxy.is_passing.set()

    assert len(await store.topics()) == is_done
