"""Metadata stores over real databases: SQLite always, PostgreSQL where it is installed."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from gateway.metadata_sql import SqlMetadata
from tests.gateway import postgres


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    reason = postgres.missing()
    if reason is not None:
        pytest.skip(reason)
    with postgres.running_postgres() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
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
async def sqlite_store(tmp_path: Path) -> AsyncIterator[SqlMetadata]:
    store = SqlMetadata("sqlite", data_dir=tmp_path)
    await store.open()
    yield store
    await store.close()
