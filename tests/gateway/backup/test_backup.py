"""The parts of a backup outside of the log: the list, the database, and putting it back."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from crc32c import crc32c

from gateway.backup.create import copy_sqlite
from gateway.backup.file import (
    BACKUP_NAME,
    BackupDamaged,
    BackupEntry,
    BackupFile,
    checksum,
    read_backup_file,
    write_backup_file,
)
from gateway.backup.restore import NotEmpty, restore

FILES = {
    "metadata.sqlite": b"tables",
    "settled/MANIFEST": b"what counts",
    "wal/00000000000000000001.seg": b"entries" * 300_000,
}


def make_backup(folder: Path, **changes: object) -> BackupFile:
    """Return a finished backup of ``FILES``."""
    entries = []
    for name, data in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        size_bytes, crc = checksum(path)
        entries.append(BackupEntry(path=name, size_bytes=size_bytes, crc32c=crc))
    content = BackupFile(
        created_unix_ms=5,
        headgate_version="1.2",
        data_uuid="4ee0",
        metadata="sqlite",
        files=tuple(entries),
    ).model_copy(update=changes)
    write_backup_file(folder, content)
    return content


def test_the_list_comes_back_as_it_was_written(tmp_path: Path) -> None:
    content = make_backup(tmp_path)
    assert read_backup_file(tmp_path) == content
    assert content.size_bytes == sum(map(len, FILES.values()))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b"headgate-backup", b"somebody-elses", "no list"),
        (b"headgate-backup 1", b"headgate-backup 2", "format 2"),
        (b"4ee0", b"4ee1", "CRC"),
        (b"headgate-backup 1 ", b"", "no list"),
    ],
)
def test_a_list_that_is_not_whole_is_refused(
    tmp_path: Path, old: bytes, new: bytes, words: str
) -> None:
    make_backup(tmp_path)
    path = tmp_path / BACKUP_NAME
    path.write_bytes(path.read_bytes().replace(old, new))
    with pytest.raises(BackupDamaged, match=words):
        read_backup_file(tmp_path)


def test_a_backup_that_was_never_finished_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackupDamaged, match="never finished"):
        read_backup_file(tmp_path)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "."])
def test_a_list_that_leads_out_of_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    make_backup(tmp_path, files=(BackupEntry(path=name, size_bytes=0, crc32c=0),))
    with pytest.raises(BackupDamaged, match="not below"):
        read_backup_file(tmp_path)


def test_a_backup_is_put_in_place_byte_by_byte(tmp_path: Path) -> None:
    content = make_backup(tmp_path / "backup")
    target = tmp_path / "data"
    target.mkdir()
    (target / "lock").touch()
    copied: list[int] = []

    assert restore(tmp_path / "backup", target, on_copied=copied.append) == content

    assert {name: (target / name).read_bytes() for name in FILES} == FILES
    assert sorted(path.name for path in target.iterdir()) == [
        "lock", "metadata.sqlite", "settled", "wal",
    ]  # fmt: skip
    assert sum(copied) == content.size_bytes
    assert (target / "metadata.sqlite").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", list(FILES))
@pytest.mark.parametrize("what", ["flipped", "shorter", "gone"])
def test_damage_is_found_and_leaves_no_log(tmp_path: Path, name: str, what: str) -> None:
    make_backup(tmp_path / "backup")
    path = tmp_path / "backup" / name
    data = path.read_bytes()
    if what == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:-1] + (b"" if what == "shorter" else b"\x00"))
    target = tmp_path / "data"
    target.mkdir()

    with pytest.raises(BackupDamaged, match=path.name):
        restore(tmp_path / "backup", target)
    assert not (target / "wal").exists()

    path.write_bytes(data)
    restore(tmp_path / "backup", target)
    assert (target / name).read_bytes() == data


def test_a_target_that_holds_something_is_refused(tmp_path: Path) -> None:
    make_backup(tmp_path / "backup")
    target = tmp_path / "data"
    target.mkdir()
    (target / "wal").mkdir()
    with pytest.raises(NotEmpty, match="wal"):
        restore(tmp_path / "backup", target)


def test_a_checksum_is_that_of_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 3_000_001)
    steps: list[int] = []
    assert checksum(path, on_read=steps.append) == (3_000_001, crc32c(b"x" * 3_000_001))
    assert sum(steps) == 3_000_001


def test_a_database_is_copied_as_of_one_moment(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    with closing(sqlite3.connect(path)) as setup:
        setup.execute("PRAGMA journal_mode = WAL")
        setup.execute("CREATE TABLE pairs (a INTEGER, b INTEGER)")
        setup.commit()
    begun, stop = threading.Event(), threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(path)) as connection:
            n = 0
            while not stop.is_set():
                with connection:
                    connection.execute("INSERT INTO pairs VALUES (?, 0)", (n,))
                    connection.execute("UPDATE pairs SET b = ?", (n,))
                n += 1
                begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    begun.wait(10)
    for number in range(5):
        copy_sqlite(path, tmp_path / f"copy-{number}")
    stop.set()
    writer.join()

    for number in range(5):
        copy = tmp_path / f"copy-{number}"
        assert copy.stat().st_mode & 0o777 == 0o600
        with closing(sqlite3.connect(copy)) as connection:
            rows = connection.execute("SELECT a, b FROM pairs ORDER BY a").fetchall()
        assert rows
        assert {b for _, b in rows} == {rows[-1][0]}
    assert not list(tmp_path.glob("copy-*-*"))
