"""Engines: bounded, private, and silent about values."""

import stat
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DBAPIError

from gateway.errors import StorageUnavailable
from gateway.sql import engines as sql


def dispose_after(engine: Engine, statement: str) -> object:
    with engine.connect() as connection:
        value = connection.scalar(text(statement))
    engine.dispose()
    return value


def test_the_config_says_sqlite_for_a_file_in_data_dir(tmp_path: Path) -> None:
    assert sql.engine_url("sqlite", tmp_path) == f"sqlite:///{tmp_path}/metadata.sqlite"
    assert sql.engine_url("postgresql+psycopg://h/d", tmp_path) == "postgresql+psycopg://h/d"


def test_an_sqlite_file_is_made_for_our_eyes_only(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "any.sqlite"

    dispose_after(sql.make_engine(f"sqlite:///{path}"), "SELECT 1")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_sqlite_file_that_is_not_there_is_not_made_for_a_reader(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="there is no such database"):
        sql.make_engine(f"sqlite:///{tmp_path}/none.sqlite", create=False)

    assert list(tmp_path.iterdir()) == []


def test_values_are_not_in_errors(url: str, tmp_path: Path) -> None:
    engine = sql.make_engine(sql.engine_url(url, tmp_path))

    with engine.connect() as connection, pytest.raises(DBAPIError) as caught:
        connection.execute(text("INSERT INTO nowhere VALUES (:key)"), {"key": "s3cret"})

    engine.dispose()
    assert "s3cret" not in str(caught.value)
    assert "nowhere" in sql.one_line(caught.value)
    assert "\n" not in sql.one_line(caught.value)


@pytest.mark.usefixtures("synced_sqlite")
def test_sqlite_syncs_at_every_commit(tmp_path: Path) -> None:
    url = sql.engine_url("sqlite", tmp_path)

    assert dispose_after(sql.make_engine(url), "PRAGMA synchronous") == 2  # FULL
    assert dispose_after(sql.make_engine(url), "PRAGMA journal_mode") == "wal"


@pytest.mark.parametrize(
    ("setting", "value"),
    [("lock_timeout", "5s"), ("idle_in_transaction_session_timeout", "15s")],
)
def test_what_a_session_of_postgresql_waits_has_a_bound(
    postgres_url: str, setting: str, value: str
) -> None:
    assert dispose_after(sql.make_engine(postgres_url), f"SHOW {setting}") == value


def test_what_a_url_says_itself_counts(postgres_url: str) -> None:
    engine = sql.make_engine(f"{postgres_url}?connect_timeout=3&application_name=ours")

    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        parameters = driver.info.get_parameters()

    engine.dispose()
    assert parameters["connect_timeout"] == "3"
    assert parameters["tcp_user_timeout"] == "15000"


def test_reading_waits_for_no_writer(tmp_path: Path) -> None:
    url = sql.engine_url("sqlite", tmp_path)
    engine = sql.make_engine(url)
    engine.connect().close()  # from now on the file has a WAL
    other = create_engine(url)
    with other.connect() as writer:
        writer.exec_driver_sql("BEGIN IMMEDIATE")

        with sql.reading(engine).connect() as reader:
            assert reader.scalar(text("SELECT 1")) == 1

    engine.dispose()
    other.dispose()
