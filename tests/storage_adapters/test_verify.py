"""``log verify`` finds what is wrong in settled segments, the manifest and between files."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli.log import log_app
from gateway.errors import StorageUnavailable
from gateway.testing.storage import delete
from storage_adapters.segment_log.segments import SETTLED_DIRECTORY, list_segments
from storage_adapters.segment_log.settled_files import manifest_path, read_manifest
from storage_adapters.segment_log.verify import DAMAGED, REPAIR, Verification
from tests.storage_adapters.settling import fill, opened, settle
from tests.storage_adapters.test_recovery import flip


@pytest.fixture
async def data_dir(tmp_path: Path) -> Path:
    log = await opened(tmp_path)
    await fill(log, 60)
    await settle(log)
    await delete(log, 3)
    await fill(log, 20, (1, 2))
    await log.close()
    return tmp_path


def findings(data_dir: Path) -> list[tuple[str, str, str]]:
    return [(kind, path.name, text) for kind, path, text in Verification(data_dir).run()]


def settled_file(data_dir: Path, *, owner: int | None = None) -> Path:
    manifest = read_manifest(data_dir)
    assert manifest is not None
    number = next(
        r.number
        for r in manifest.files
        if r.number != manifest.directory and (owner is None or r.owner == owner)
    )
    return dict(list_segments(data_dir, SETTLED_DIRECTORY))[number]


async def test_what_is_whole_is_said_to_be(data_dir: Path) -> None:
    result = CliRunner().invoke(log_app, ["verify", str(data_dir)])
    assert result.exit_code == 0
    assert "2 partitions" in result.output
    assert DAMAGED not in result.output


async def test_flipped_bit_in_a_settled_batch(data_dir: Path) -> None:
    flip(settled_file(data_dir, owner=1), 64 + 60_000 * 3)
    ((kind, _, text),) = findings(data_dir)
    assert kind == DAMAGED
    assert "offset 2" in text
    assert "the CRC of the batch does not match" in text
    result = CliRunner().invoke(log_app, ["verify", str(data_dir)])
    assert result.exit_code == 1
    result = CliRunner().invoke(log_app, ["dump", str(data_dir)])
    assert result.exit_code == 1
    assert "the CRC of the batch does not match" in result.output


async def test_settled_files_are_dumped(data_dir: Path) -> None:
    result = CliRunner().invoke(log_app, ["dump", str(data_dir)])
    assert result.exit_code == 0
    assert "manifest  generation" in result.output
    assert "partition 1" in result.output
    assert "shared" in result.output


@pytest.mark.parametrize("position", [0, 20, -1])
async def test_flipped_bit_in_a_settled_frame(data_dir: Path, position: int) -> None:
    path = settled_file(data_dir)
    flip(path, position % path.stat().st_size)
    assert any(kind == DAMAGED and name == path.name for kind, name, _ in findings(data_dir))
    with pytest.raises(StorageUnavailable, match=path.name):
        await opened(data_dir)


async def test_lost_settled_file(data_dir: Path) -> None:
    path = settled_file(data_dir)
    path.unlink()
    assert any("is gone" in text for _, _, text in findings(data_dir))
    with pytest.raises(StorageUnavailable, match="is gone"):
        await opened(data_dir)


async def test_lost_or_damaged_manifest(data_dir: Path) -> None:
    path = manifest_path(data_dir)
    flip(path, 30)
    assert findings(data_dir)[0][0] == DAMAGED
    with pytest.raises(StorageUnavailable, match="CRC does not match"):
        await opened(data_dir)
    path.unlink()
    assert any("is gone" in text for _, _, text in findings(data_dir))
    with pytest.raises(StorageUnavailable, match="is gone"):
        await opened(data_dir)


async def test_leftovers_would_be_removed(data_dir: Path) -> None:
    path = settled_file(data_dir)
    stray = path.with_name("00000000000000000999.seg")
    stray.write_bytes(path.read_bytes())
    assert findings(data_dir) == [(REPAIR, stray.name, "does not count; it would be removed")]
    log = await opened(data_dir)
    assert not stray.exists()
    await log.close()


async def test_removed_log_segment_leaves_a_gap(data_dir: Path) -> None:
    list_segments(data_dir)[0][1].unlink()
    texts = [text for kind, _, text in findings(data_dir) if kind == DAMAGED]
    assert texts


async def test_a_running_node_is_left_alone(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    result = CliRunner().invoke(log_app, ["verify", str(tmp_path)])
    assert result.exit_code == 2
    await log.close()
