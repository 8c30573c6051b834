"""``headgate reshard``: give a stopped node's data another number of shards.

The command sets the number, in one transaction. The next start makes the partitions that are
missing and moves the state, a bounded part in each append: killed at any point, the node, or the
command with any number, may be run again.
"""

import asyncio
from typing import Annotated

import typer

from gateway.cli import options
from gateway.cli.node_commands import confirm
from gateway.cli.output import say
from gateway.cli.settings import settings_of
from gateway.cli.stopped_node import stopped_metadata
from gateway.config.base import InvalidSettings
from gateway.config.settings import Settings
from gateway.errors import GatewayError
from gateway.shard_count import SHARD_COUNT, is_shard_count


class NothingToReshard(GatewayError):
    """Missing data: a new directory gets its number of shards from ``node.shards``."""


def reshard(
    *,
    shards: Annotated[int, typer.Option(help="The new number of shards, a power of two.")],
    yes: options.Yes = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Give a stopped node's data another number of shards."""
    if not is_shard_count(shards):
        msg = f"--shards: {shards} is not a power of two from 1 to 1024"
        raise InvalidSettings(msg)
    settings = settings_of(config, assignments)
    confirm(lambda: f"Give {settings.node.data_dir} {shards} shard(s)?", yes=yes)
    asyncio.run(_reshard(settings, shards))
    say(f"{shards} shard(s); the next start of the node moves the state to them.")


async def _reshard(settings: Settings, shards: int) -> None:
    """Set the number. Errors: ``NothingToReshard``; ``StorageUnavailable``, when a node runs."""
    from storage_adapters.segment_log.lockfile import DataLock

    data_dir = settings.node.data_dir
    if not data_dir.is_dir():
        msg = f"{data_dir.absolute()} is not there; name it with --set node.data_dir=..."
        raise NothingToReshard(msg)
    lock = DataLock(data_dir)
    lock.acquire()
    try:
        async with stopped_metadata(settings) as metadata:
            if await metadata.data_uuid() is None:
                msg = f"{data_dir.absolute()} holds no data: set node.shards for a new node"
                raise NothingToReshard(msg)
            await metadata.set_value(SHARD_COUNT, str(shards))
    finally:
        lock.release()
