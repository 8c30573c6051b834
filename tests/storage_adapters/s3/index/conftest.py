"""The index over real databases: SQLite always, PostgreSQL where it is installed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from gateway.clock import ManualClock
from gateway.sql.engines import engine_url
from storage_adapters.s3.index import Index


@pytest.fixture
def empty_postgres_url(postgres_url: str) -> str:
    engine = create_engine(postgres_url)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
    return postgres_url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return engine_url("sqlite", tmp_path)
    found: str = request.getfixturevalue("empty_postgres_url")
    return found


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_index(url: str, clock: ManualClock) -> Iterator[Callable[..., Index]]:
    """Open the index once more, as another node or a reader outside does."""
    opened: list[Index] = []

    def open_one(*, create: bool = True) -> Index:
        index = Index(url, clock=clock)
        index.open(create=create)
        opened.append(index)
        return index

    yield open_one
    for index in opened:
        index.close()


@pytest.fixture
def index(open_index: Callable[..., Index]) -> Index:
    return open_index()
