"""Content of the fixtures of format 1 (``make_fixtures_v1``)."""

from pathlib import Path
from typing import Final

from gateway.model import parse_batch_header
from gateway.storage import Bounds, StorageAdapter
from gateway.testing.storage import make_batch, read_all

FIXTURES: Final = Path(__file__).parents[1] / "fixtures"


async def check_content(storage: StorageAdapter, ends: tuple[int, int, int]) -> None:
    """Check the three partitions: bounds, bytes of batches, and epochs, each filled in."""
    one, two, three = ends
    assert [storage.bounds(i) for i in (1, 2, 3)] == [
        Bounds(0, one),
        Bounds(4, two),
        Bounds(0, three),
    ]
    own = await read_all(storage, 1)
    epochs = [parse_batch_header(data).leader_epoch for data in own]
    assert own == [
        make_batch(offset, size_bytes=1_500, epoch=epoch) for offset, epoch in enumerate(epochs)
    ]
    for partition_id in (2, 3):
        for data in await read_all(storage, partition_id):
            header = parse_batch_header(data)
            assert data == make_batch(header.base_offset, 3, epoch=header.leader_epoch)
    assert epochs == sorted(epochs)
