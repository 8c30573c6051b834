"""The mark of how far the log is synced: never ahead of the disk, and no more than a help."""

from pathlib import Path
from uuid import UUID

import pytest

from gateway.testing.storage import Host, append, make_entry, read_all
from storage_adapters.formats.damage import Damaged
from storage_adapters.formats.synced import MARK_BYTES, decode_mark
from storage_adapters.segment_log.segments import WAL_DIRECTORY
from storage_adapters.segment_log.synced import MARK_NAME, MarkFile, read_mark
from tests.storage_adapters.test_segment_log import new_log
from tests.support.waiting import wait_until


async def test_the_mark_is_at_what_was_acknowledged(tmp_path: Path) -> None:
    log = new_log(tmp_path, flush="group")
    await log.open(Host())

    await append(log, make_entry((1, 0)), make_entry((2, 0)))

    mark = read_mark(tmp_path)
    assert mark is not None
    assert mark == (log.data_uuid, log.next_sequence - 1)
    await log.close()


async def test_what_no_sync_has_reached_is_not_marked(tmp_path: Path) -> None:
    log = new_log(tmp_path, flush="never")
    await log.open(Host())

    await append(log, make_entry((1, 0)))

    assert read_mark(tmp_path) is None
    await log.close()
    mark = read_mark(tmp_path)
    assert mark is not None
    assert mark.sequence < log.next_sequence  # the entry that says that the stop was clean


async def test_an_interval_marks_what_it_synced(tmp_path: Path) -> None:
    log = new_log(tmp_path, flush="interval", flush_interval_ms=10)
    await log.open(Host())

    await append(log, make_entry((1, 0)))
    await log._writer.reach(log.next_sequence - 1)

    wait_until(lambda: read_mark(tmp_path) is not None, within_s=10, what="a mark")
    await log.close()


async def test_a_log_without_its_mark_goes_on(tmp_path: Path) -> None:
    log = new_log(tmp_path, flush="group")
    await log.open(Host())
    await append(log, make_entry((1, 0)))
    await log.close()
    (tmp_path / WAL_DIRECTORY / MARK_NAME).unlink()

    log = new_log(tmp_path, flush="group")
    await log.open(Host())
    await append(log, make_entry((1, 1)))

    assert len(await read_all(log, 1)) == 2
    assert read_mark(tmp_path) is not None
    await log.close()


def test_a_mark_that_was_half_written_says_nothing(tmp_path: Path) -> None:
    mark = tmp_path / WAL_DIRECTORY / MARK_NAME
    mark.parent.mkdir()
    mark.write_bytes(b"HGSY" + bytes(MARK_BYTES - 4))
    assert read_mark(tmp_path) is None
    with pytest.raises(Damaged):
        decode_mark(b"HGSY")


def test_a_folder_that_refuses_the_mark_is_no_fault(tmp_path: Path) -> None:
    mark = MarkFile(tmp_path, UUID(int=5))
    mark.note(7)
    mark.close()
    assert read_mark(tmp_path) is None
