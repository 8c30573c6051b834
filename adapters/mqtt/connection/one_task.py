"""The one coroutine that a connection may have under way, and what follows it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from gateway.connection import Connection
from gateway.errors import GatewayError, as_value

Work = Coroutine[Any, Any, Any]
Then = Callable[[Any, GatewayError | None], None]


class OneTask:
    """At most one task. ``is_working``: it has not ended."""

    __slots__ = ("_task",)

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    @property
    def is_working(self) -> bool:
        """Whether what ``start`` began has not ended."""
        return self._task is not None

    def start(self, connection: Connection, work: Work, then: Then) -> None:
        """Run ``work``, then call ``then(result, error)`` if the connection is still there."""
        self._task = asyncio.get_running_loop().create_task(self._run(connection, work, then))

    async def _run(self, connection: Connection, work: Work, then: Then) -> None:
        result, error = None, None
        try:
            result = await work
        except GatewayError as raised:
            error = as_value(raised)
        finally:
            self._task = None
        if not connection.is_closing:
            connection.guard(then, result, error)

    def cancel(self) -> None:
        """End it; ``then`` is not called."""
        if self._task is not None:
            self._task.cancel()
