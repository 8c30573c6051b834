"""PostgreSQL's notifications of metadata changes, over a connection of their own.

They save waiting for the next poll, and are no more than that: one that is lost with its
connection is made up for by the poll that follows.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import psycopg
import structlog
from psycopg import sql

from gateway.metadata.change_rows import CHANNEL

RETRY_S: Final = 1.0

log = structlog.get_logger()


async def listen(
    parameters: dict[str, Any],
    *,
    on_change: Callable[[], None],
    on_seen: Callable[[int, int], None],
) -> None:
    """Call back for each notification, until cancelled; connect again when the connection ends.

    ``on_change``: a node has written, or notifications may have been lost. ``on_seen``: a node,
    and the revision that it has seen.
    """
    while True:
        try:
            await _listen_once(parameters, on_change, on_seen)
        except (psycopg.Error, OSError) as error:
            log.warning("no notifications of metadata", error=str(error).strip())
        await asyncio.sleep(RETRY_S)


async def _listen_once(
    parameters: dict[str, Any],
    on_change: Callable[[], None],
    on_seen: Callable[[int, int], None],
) -> None:
    connection = await psycopg.AsyncConnection.connect(**parameters, autocommit=True)
    async with connection:
        await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(CHANNEL)))
        on_change()
        async for notification in connection.notifies():
            node, _, revision = notification.payload.partition(":")
            if revision:
                on_seen(int(node), int(revision))
            else:
                on_change()
