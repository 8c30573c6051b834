"""Processes that share a bucket and a database: one is killed, one sleeps, others take over."""

import os
import signal
import sys
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from gateway.clock import SystemClock
from gateway.errors import StorageUnavailable
from gateway.testing.process import Program
from gateway.testing.storage import Host, append, make_entry, offsets_of
from storage_adapters.s3.adapter import S3Storage
from storage_adapters.s3.bucket import Bucket
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.index import Index
from storage_adapters.s3.opening import catalog_of
from storage_adapters.s3.recovery import restore_index, survey_bucket
from storage_adapters.s3.state import Catalog
from tests.support.s3_servers import S3Server

ACKNOWLEDGED = 20  # of each process, before anything happens to it
WITHIN_S = 120
FENCES_MAX = 8

pytestmark = pytest.mark.crash


class Writer:
    """A process that appends to its partitions."""

    def __init__(
        self, stack: AsyncExitStack, config: S3Config, url: str, folder: Path, node_id: int
    ) -> None:
        self.ids = [node_id * 10, node_id * 10 + 1]
        settings = config.model_dump_json(exclude_unset=True)
        arguments = [settings, url, folder / f"{node_id}", node_id, *self.ids]
        command = [sys.executable, "-m", "tests.crash.writer_program", *map(str, arguments)]
        self.program = Program(command)
        stack.callback(self.program.kill)

    def wait(self) -> None:
        """Return when enough is acknowledged."""
        lines = self.program.lines
        self.program.wait_for(
            lambda: len(lines) >= ACKNOWLEDGED, within_s=WITHIN_S, what="acknowledgements"
        )

    def acknowledged(self) -> dict[int, int]:
        """Return one past the last acknowledged offset of each partition."""
        found = dict.fromkeys(self.ids, 0)
        for line in self.program.lines:
            partition_id, _, offset = line.partition(" ")
            if partition_id.isdecimal():
                found[int(partition_id)] = int(offset) + 1
        return found


def _state(catalog: Catalog) -> dict[int, object]:
    return {
        state.partition_id: (state.start, state.end, state.extents)
        for state in catalog.partitions.values()
        if state.extents
    }


def _stored(url: str) -> Catalog:
    with closing(Index(url, clock=SystemClock())) as index:
        index.open()
        return catalog_of(index.load())


def _recovered(config: S3Config, url: str) -> Catalog:
    with (
        closing(Index(url, clock=SystemClock())) as index,
        closing(Bucket(config, SystemClock())) as bucket,
    ):
        index.open()
        restore_index(config, bucket, index, survey_bucket(config, bucket))
        return catalog_of(index.load())


async def _offsets(node: S3Storage, partition_id: int) -> list[int]:
    """Return the base offsets of a partition; a read returns as many batches as have room."""
    found: list[int] = []
    while batches := await node.read(
        partition_id, len(found), node.bounds(partition_id).end, bytes_max=1 << 20
    ):
        found += offsets_of(batches)
    return found


async def _check_whole(node: S3Storage, writer: Writer) -> None:
    """See that the node reads all that was acknowledged, each offset once."""
    for partition_id, count in writer.acknowledged().items():
        found = await _offsets(node, partition_id)
        assert found == list(range(len(found)))
        assert len(found) >= count > 0


async def _take(node: S3Storage, dead_id: int, ids: list[int]) -> None:
    """Fence a node, and go on with its partitions."""
    for _ in range(FENCES_MAX):
        try:
            await node.others.fence(dead_id)
            break
        except StorageUnavailable:  # it sleeps in a transaction, which the server ends
            continue
    await node.others.refresh()
    for partition_id in ids:
        end = node.bounds(partition_id).end
        for offset in range(end, end + 3):
            await append(node, make_entry((partition_id, offset), size_bytes=300))


async def test_nothing_acknowledged_is_lost_when_writers_die_or_sleep(
    server: S3Server, metadata_url: str, tmp_path: Path
) -> None:
    config = S3Config(
        bucket=server.bucket,
        endpoint_url=server.endpoint_url,
        flush_interval_ms=5,
        disk_cache_bytes=0,
        merge_objects_min=8,
        merge_after_ms=500,
    )
    async with AsyncExitStack() as stack:
        killed, slept = [
            Writer(stack, config, metadata_url, tmp_path, node_id) for node_id in (1, 2)
        ]
        node = S3Storage(config, data_dir=tmp_path, clock=SystemClock(), is_shared=True)
        host = Host(metadata_url)
        host.node_id = 3
        await node.open(host)
        stack.push_async_callback(node.close)  # a second call does nothing
        killed.wait()
        slept.wait()

        killed.program.kill()
        os.kill(slept.program.pid, signal.SIGSTOP)
        await _take(node, 1, killed.ids)
        await _take(node, 2, slept.ids)
        os.kill(slept.program.pid, signal.SIGCONT)

        assert slept.program.ended(within_s=WITHIN_S) == 0
        refused = [line for line in slept.program.lines if "has taken over this data" in line]
        assert refused, slept.program.tail()
        for writer in (killed, slept):
            await _check_whole(node, writer)
        await node.close()
        recovered = _recovered(config, f"sqlite:///{tmp_path}/recovered.sqlite")
        assert _state(recovered) == _state(_stored(metadata_url))
