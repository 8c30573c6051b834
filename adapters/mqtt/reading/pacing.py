"""Long work on the event loop, in slices: live traffic comes between them."""

import asyncio
from time import perf_counter
from types import TracebackType
from typing import Final

SLICE_S: Final = 0.002
IDLE_TURN_S: Final = 0.0002  # a turn of the loop that is shorter had next to nothing to do
FILTERS_PER_STEP: Final = 32  # of one client, worked on before others come


class Pace:
    """One at a time may work: ``async with pace``, and ``rest`` whenever ``is_over``.

    After a slice the loop runs, once when it has nothing else to do, else for as long as the
    slice took: so such work takes at most half of the time of a busy loop.
    """

    def __init__(self, *, slice_s: float = SLICE_S) -> None:
        self._turn = asyncio.Lock()
        self._slice_s = slice_s
        self._began_s = 0.0
        self.rests = 0

    @property
    def is_over(self) -> bool:
        """Whether this slice has lasted long enough."""
        return perf_counter() - self._began_s >= self._slice_s

    async def rest(self) -> None:
        """Let the loop do what else there is; then another slice begins."""
        self.rests += 1
        before_s = perf_counter()
        rest_until_s = before_s + (before_s - self._began_s)
        while True:
            await asyncio.sleep(0)
            now_s = perf_counter()
            if now_s - before_s < IDLE_TURN_S or now_s >= rest_until_s:
                break
            before_s = now_s
        self._began_s = now_s

    async def __aenter__(self) -> None:
        """Wait for one's turn; a slice begins."""
        await self._turn.acquire()
        self._began_s = perf_counter()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Rest, and let the next one work."""
        try:
            if error is None:
                await self.rest()
        finally:
            self._turn.release()
