"""SQLite's journal is copied beside the commits, often, so that it stays short."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.sql.checkpoints import PAGES_MAX, Checkpoints
from gateway.sql.engines import make_engine, reading
from tests.support.waiting import wait_until

BYTES = 400_000  # a hundred pages


class Place:
    """An engine with its checkpoints, and the two files."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "some.sqlite"
        self.journal = folder / "some.sqlite-wal"
        self.engine = make_engine(f"sqlite:///{self.file}")
        self.checkpoints = Checkpoints(self.engine)
        self.write("CREATE TABLE held (number INTEGER PRIMARY KEY, bytes BLOB)")

    def write(self, statement: str, *values: int) -> None:
        with self.engine.begin() as connection:
            connection.exec_driver_sql(statement, values)
        self.checkpoints.note()

    def put(self, number: int) -> None:
        self.write("INSERT OR REPLACE INTO held VALUES (?, zeroblob(?))", number, BYTES)

    @property
    def is_copied(self) -> bool:
        return self.file.stat().st_size > BYTES

    def close(self) -> None:
        self.checkpoints.close()
        self.engine.dispose()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr("gateway.sql.checkpoints.PAUSE_S", 0.01)
    one = Place(tmp_path)
    yield one
    one.close()


def test_what_was_committed_is_copied_without_another_commit(place: Place) -> None:
    place.put(1)
    wait_until(lambda: place.is_copied, within_s=30, what="the copy")
    place.put(2)
    wait_until(
        lambda: place.file.stat().st_size > 2 * BYTES, within_s=30, what="the second copy"
    )


def test_a_commit_copies_nothing_itself(place: Place) -> None:
    place.checkpoints.close()
    for number in range(20):  # twice as much as SQLite would have it
        place.put(number)

    assert not place.is_copied
    with place.engine.connect() as connection:
        found = connection.exec_driver_sql("PRAGMA wal_autocheckpoint").scalar()
    assert found == PAGES_MAX  # the bound, should the thread be gone


def test_the_journal_is_written_over_once_it_is_copied(place: Place) -> None:
    sizes = set()
    for _ in range(20):
        place.put(1)
        place.checkpoints._copy()
        sizes.add(place.journal.stat().st_size)

    assert max(sizes) < 3 * BYTES  # of twenty


def test_a_reader_in_the_middle_keeps_its_view(place: Place) -> None:
    place.put(1)
    with reading(place.engine).connect() as reader:
        count = "SELECT count(*) FROM held"
        assert reader.exec_driver_sql(count).scalar() == 1
        other = make_engine(f"sqlite:///{place.file}")
        with other.begin() as writer:
            writer.exec_driver_sql("INSERT INTO held VALUES (2, NULL)")
        place.checkpoints._copy()
        assert reader.exec_driver_sql(count).scalar() == 1
        other.dispose()


def test_a_second_close_does_nothing(place: Place) -> None:
    place.checkpoints.close()
    place.checkpoints.close()

    assert not place.checkpoints._thread.is_alive()


def test_another_database_has_its_own() -> None:
    assert Checkpoints.beside(make_engine("postgresql+psycopg://nobody@127.0.0.1/none")) is None
