"""End of background tasks."""

import asyncio
from contextlib import suppress


async def stop_task(task: "asyncio.Task[None] | None") -> None:
    """Cancel a task and wait until it has ended; None is a task that was never started.

    Errors: those with which it had ended before.
    """
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
