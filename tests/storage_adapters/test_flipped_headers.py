"""A byte of a stored batch has changed: readers find the batch behind it, whatever the byte is."""

from pathlib import Path

import pytest

from gateway.model import HEADER_BYTES, parse_batch_header
from gateway.testing.storage import Host, append, make_batch, make_entry
from storage_adapters.segment_log.copying import is_intact
from tests.storage_adapters.test_segment_log import new_log

KNOWN_TO_ROWS = {*range(17), *range(23, 27)}  # offset, length, epoch, magic; the last offset
COUNT = 3  # records of each batch


@pytest.mark.parametrize("at", range(HEADER_BYTES + 5))
async def test_a_flipped_byte_leads_nobody_astray(tmp_path: Path, at: int) -> None:
    log = new_log(tmp_path)
    await log.open(Host())
    for number in range(3):
        await append(log, make_entry((1, COUNT * number), COUNT))
    flip(tmp_path, make_batch(COUNT, COUNT), at)

    batches = await log.read(1, 0, 9, bytes_max=1 << 20)

    headers = [parse_batch_header(batch) for batch in batches]
    assert [(one.base_offset, one.last_offset) for one in headers] == [(0, 2), (3, 5), (6, 8)]
    assert [is_intact(batch) for batch in batches] == [True, at in KNOWN_TO_ROWS, True]
    assert len(await log.read(1, 4, 9, bytes_max=1 << 20)) == 2
    await log.close()


def flip(data_dir: Path, batch: bytes, at: int) -> None:
    """Change one bit of a byte of a batch where it is stored."""
    ((path, start),) = [
        (path, found)
        for path in data_dir.glob("wal/*.seg")
        if (found := path.read_bytes().find(batch)) >= 0
    ]
    with path.open("r+b") as stored:
        stored.seek(start + at)
        stored.write(bytes([batch[at] ^ 1]))
