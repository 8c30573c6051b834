"""Identity of an index, reasons to refuse opening it, and its reconstruction."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, text

from gateway.clock import ManualClock
from gateway.errors import StorageUnavailable
from storage_adapters.s3.change import Change
from storage_adapters.s3.index import Fenced, Index, IndexUnavailable
from tests.storage_adapters.s3.index.changes import OpenIndex, added, bounds, new_object

# --- Whose index it is


def test_an_index_is_of_one_bucket_and_prefix(index: Index) -> None:
    assert index.data_uuid() is None
    ours = uuid4()
    index.set_data_uuid(ours, "bucket", "gw/")
    index.set_data_uuid(ours, "bucket", "gw/")

    for other in ((uuid4(), "bucket", "gw/"), (ours, "other", "gw/"), (ours, "bucket", "")):
        with pytest.raises(StorageUnavailable, match=r"in bucket 'bucket', prefix 'gw/'"):
            index.set_data_uuid(*other)

    assert index.data_uuid() == ours


def test_an_index_of_a_newer_format_is_refused(
    index: Index, url: str, open_index: OpenIndex
) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE s3_index SET format = 4"))
    engine.dispose()
    index.close()

    for create in (True, False):
        with pytest.raises(StorageUnavailable, match="format 4, this Headgate knows up to 3"):
            open_index(create=create)


def test_a_reader_makes_nothing(open_index: OpenIndex, tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable):
        open_index(create=False)

    assert list(tmp_path.iterdir()) == []
    open_index().close()
    reader = open_index(create=False)
    assert reader.load() == ([], [])


def test_the_tables_are_made_once_by_nodes_that_start_together(open_index: OpenIndex) -> None:
    with ThreadPoolExecutor(4) as threads:
        indexes = list(threads.map(lambda _: open_index(), range(4)))

    assert sorted(index.take_over(1, reserve=0).epoch for index in indexes) == [1, 2, 3, 4]


def test_the_file_is_for_our_eyes_only(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "deep" / "metadata.sqlite"
    index = Index(f"sqlite:///{path}", clock=clock)

    index.open()

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    index.close()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("nonsense", "URL is not one of SQLAlchemy's"),
        ("nosuch://user:secret@host/db", "URL is not one of SQLAlchemy's"),
        ("sqlite:////proc/none/x.sqlite", "index: .*/proc/none"),
        ("postgresql+psycopg://u:secret@127.0.0.1:1/db", "index: .*refused"),
    ],
)
def test_a_url_that_leads_nowhere_is_said_in_one_line_without_the_password(
    url: str, says: str, clock: ManualClock
) -> None:
    index = Index(url, clock=clock)

    with pytest.raises(StorageUnavailable, match=says) as caught:
        index.open()

    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_closed_index_says_so(index: Index) -> None:
    index.close()

    with pytest.raises(IndexUnavailable, match="closed"):
        index.load()


def test_damaged_parts_are_named(index: Index, url: str) -> None:
    owned = index.take_over(1, reserve=1)
    index.commit(owned.epoch, added(*owned.reserved))
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE s3_objects SET parts = :bytes"), {"bytes": b"x"})
    engine.dispose()

    with pytest.raises(StorageUnavailable, match=r"object 1: .*recover-metadata"):
        index.load()


# --- Rebuilding


def test_restoring_replaces_everything_and_fences(index: Index, open_index: OpenIndex) -> None:
    owned = index.take_over(1, reserve=3)
    index.commit(owned.epoch, Change(added=(new_object(2),), bounds=(bounds(1),)))
    other = open_index()
    ours = uuid4()
    found = [new_object(number, epoch=4) for number in range(10, 260)]

    other.restore(
        iter(found),
        [bounds(3)],
        data_uuid=ours,
        bucket="bucket",
        prefix="gw/",
        ends={0: 77},
        next_number=260,
        epoch=4,
    )

    assert other.load() == ([(new.stored, new.parts) for new in found], [bounds(3)])
    assert other.rows(17) == found[7].rows
    other.set_data_uuid(ours, "bucket", "gw/")
    with pytest.raises(Fenced):
        index.commit(owned.epoch, Change(next_sequence=5))
    assert other.take_over(1, reserve=1) == (6, 77, [260])


def test_restoring_never_lowers_numbers_or_epochs(index: Index) -> None:
    for _ in range(6):
        index.take_over(1, reserve=10)

    index.restore(
        [],
        [],
        data_uuid=uuid4(),
        bucket="bucket",
        prefix="",
        ends={0: 3},
        next_number=4,
        epoch=2,
    )

    assert index.take_over(1, reserve=1) == (8, 3, [61])
