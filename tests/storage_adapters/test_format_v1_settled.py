"""Settled segments of format 1 are read by this version; see make_fixtures_v1.py."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli.app import app
from gateway.errors import StorageUnavailable
from gateway.storage import Bounds, Entry, Target
from gateway.testing.storage import append, make_entry, make_marker, read_all
from storage_adapters.formats import footer, segment
from storage_adapters.segment_log.inspect import inspect_segments, list_partitions
from tests.storage_adapters.format_v1 import FIXTURES, check_content
from tests.storage_adapters.settling import opened, settle


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / "settled_v1", tmp_path / "data"))


async def test_settled_segments_are_read_and_settled_on(data_dir: Path) -> None:
    log = await opened(data_dir, settle_own_bytes=4_096)
    assert log.incarnation == 4
    await check_content(log, (9, 27, 27))

    for is_abort in (True, False):
        marker = make_marker(log.bounds(1).end, is_abort=is_abort, epoch=4)
        await append(log, Entry((Target(1, log.bounds(1).end),), marker, 1, 1_000))
    await log.close()
    log = await opened(data_dir, settle_own_bytes=4_096)
    assert [h.is_abort for h in log.scan(0) if h.header[22] & 0x20] == [True, False]
    await settle(log)

    assert log.bounds(1) == Bounds(0, 11)
    assert await read_all(log, 1, start=9) == [
        make_marker(9, is_abort=True, epoch=4),
        make_marker(10, epoch=4),
    ]
    await log.close()


def test_verify_and_recovery_know_format_1(data_dir: Path) -> None:
    result = CliRunner().invoke(app, ["log", "verify", str(data_dir)])

    assert result.exit_code == 0, result.output
    assert "DAMAGED" not in result.output
    assert list_partitions(data_dir).bounds == {1: (0, 9), 2: (4, 27), 3: (0, 27)}


async def test_an_older_version_refuses_what_this_one_writes(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await opened(data_dir)
    await append(log, make_entry((1, 9), epoch=4))
    await log.close()
    last = list(inspect_segments(data_dir))[-1].path.read_bytes()
    assert (last[:4], last[8:10]) == (b"HGSG", b"\x02\x00")  # what an older version looks at
    assert last[-96 + 76 : -96 + 78] == b"\x02\x00"

    monkeypatch.setattr(segment, "FORMAT_VERSION", 1)
    monkeypatch.setattr(footer, "FORMAT_VERSION", 1)
    with pytest.raises(StorageUnavailable, match=r"later version.*format 2, kind 1"):
        await opened(data_dir)
