"""The kernel in memory; metadata stores over SQLite, and PostgreSQL where it is installed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from gateway.metadata.sql import SqlMetadata
from tests.gateway.kernel_in_memory import House, running


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return "sqlite"
    found: str = request.getfixturevalue("postgres_url")
    engine = create_engine(found)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
    return found


@pytest.fixture
async def metadata(url: str, tmp_path: Path) -> AsyncIterator[SqlMetadata]:
    store = SqlMetadata(url, data_dir=tmp_path)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with running(tmp_path) as one:
        yield one


@pytest.fixture
async def sqlite_store(tmp_path: Path) -> AsyncIterator[SqlMetadata]:
    store = SqlMetadata("sqlite", data_dir=tmp_path)
    await store.open()
    yield store
    await store.close()
