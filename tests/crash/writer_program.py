"""A node's storage that shares a bucket with others, to be killed or fenced.

    python -m tests.crash.writer_program SETTINGS METADATA_URL FOLDER NODE PARTITION...

``SETTINGS``: those of ``[storage]``, as JSON. It appends to its partitions in turn from their ends
on, one batch after the other, and prints ``PARTITION OFFSET`` for each that is acknowledged. It
ends when an append fails, with the error as its last line.
"""

import asyncio
import sys
from pathlib import Path

from gateway.clock import SystemClock
from gateway.errors import StorageUnavailable
from gateway.testing.storage import Host, append, make_entry
from storage_adapters.s3.adapter import S3Storage
from storage_adapters.s3.config import S3Config


async def run(settings: str, url: str, folder: Path, node_id: int, ids: list[int]) -> None:
    """Append until it fails."""
    config = S3Config.model_validate_json(settings)
    storage = S3Storage(config, data_dir=folder, clock=SystemClock(), is_shared=True)
    host = Host(url)
    host.node_id = node_id
    await storage.open(host)
    try:
        while True:
            for partition_id in ids:
                offset = storage.bounds(partition_id).end
                await append(storage, make_entry((partition_id, offset)))
                print(partition_id, offset, flush=True)
    except StorageUnavailable as error:
        print(error, flush=True)
    await storage.close()


if __name__ == "__main__":
    asyncio.run(
        run(
            sys.argv[1],
            sys.argv[2],
            Path(sys.argv[3]),
            int(sys.argv[4]),
            list(map(int, sys.argv[5:])),
        )
    )
