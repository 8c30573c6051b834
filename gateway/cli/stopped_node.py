"""Shared parts of commands for a stopped node: access to its metadata."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway.config.settings import Settings

if TYPE_CHECKING:
    from gateway.metadata.sql import SqlMetadata


@asynccontextmanager
async def stopped_metadata(settings: Settings) -> "AsyncIterator[SqlMetadata]":
    """Open the metadata of a stopped node; a missing data directory is created."""
    from gateway.metadata.sql import SqlMetadata
    from gateway.private_files import make_data_dir

    make_data_dir(settings.node.data_dir)
    metadata = SqlMetadata.of(settings)
    await metadata.open()
    try:
        yield metadata
    finally:
        await metadata.close()
