"""Byte budget that connections share."""

from collections.abc import Callable
from typing import Final

PROGRESS_BYTES: Final = 64 * 1024


class Budget:
    """Budget of bytes for all connections; those without room wait in order.

    ``stall_s_max``: how long a request may go without ``PROGRESS_BYTES`` while others wait.
    """

    def __init__(self, name: str, bytes_max: int, *, stall_s_max: float = 2.0) -> None:
        self.name = name
        self.stall_s_max = stall_s_max
        self.bytes_max = bytes_max
        self.bytes_taken = 0
        self._waiting: dict[Callable[[], None], None] = {}
        self._midway: dict[Callable[[], None], None] = {}  # those who wait within a request
        self._is_waking = False
        self.runner: Intake | None = None
        """Intake that may exceed the budget to the end of its request: half-read requests do not
        wait for each other."""

    @property
    def free_bytes(self) -> int:
        """Free bytes; at 0 or less, callers wait."""
        return self.bytes_max - self.bytes_taken

    @property
    def waiting_count(self) -> int:
        """Number of connections that wait for room."""
        return len(self._waiting)

    def has_room(self, size_bytes: int) -> bool:
        """Say whether that many bytes fit; a single request may exceed the whole budget."""
        return size_bytes <= self.free_bytes or self.bytes_taken <= 0

    def take(self, size_bytes: int) -> None:
        """Take bytes. One user may exceed the budget, by what comes in one piece only."""
        self.bytes_taken += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Give bytes back, and let waiters try again, each once, while there is room.

        What they give back in turn is seen here, and not by calls within calls.
        """
        self.bytes_taken -= size_bytes
        if size_bytes:
            self._wake()
            self._run_next()

    def end_run(self, runner: "Intake") -> None:
        """End this user's permission to exceed the budget; the next one may have it."""
        if self.runner is runner:
            self.runner = None
            self._run_next()

    def _run_next(self) -> None:
        """Call the first waiter within a request, if none exceeds the budget."""
        if self.runner is None and self._midway:
            retry = next(iter(self._midway))
            self.leave(retry)
            retry()

    def _wake(self) -> None:
        if self._is_waking:
            return
        self._is_waking = True
        try:
            for _ in range(len(self._waiting)):
                if self.free_bytes <= 0 or not self._waiting:
                    return
                retry = next(iter(self._waiting))
                self.leave(retry)
                retry()
        finally:
            self._is_waking = False

    def wait(self, retry: Callable[[], None], *, is_midway: bool = False) -> None:
        """Call ``retry``, which must not raise, once there is room; waiting twice is once.

        ``is_midway``: or once nobody exceeds the budget.
        """
        self._waiting[retry] = None
        if is_midway:
            self._midway[retry] = None

    def leave(self, retry: Callable[[], None]) -> None:
        """Stop waiting."""
        self._waiting.pop(retry, None)
        self._midway.pop(retry, None)


class Intake:
    """Bytes of incoming requests that one connection keeps, counted on arrival.

    Announced sizes do not count: a client that announces much and sends nothing delays no other.
    When the budget is full one connection goes on to the end of its request and the others wait
    in order; a waiting one is called back by ``retry``, and asks again.
    """

    __slots__ = (
        "_budget",
        "_bytes_before",
        "_is_midway",
        "_progress_s",
        "_retry",
        "kept_bytes",
    )

    def __init__(self, budget: Budget, retry: Callable[[], None]) -> None:
        self._budget = budget
        self._retry = retry
        self.kept_bytes = 0
        self._is_midway = False
        self._bytes_before = 0  # received up to ``_progress_s``
        self._progress_s: float | None = None

    def count(self, kept_bytes: int, *, is_midway: bool) -> bool:
        """Set the kept bytes, and return whether more may be read.

        ``is_midway``: a request has begun whose rest is to come.
        """
        budget = self._budget
        budget.leave(self._retry)  # giving back must not come back to us in the midst of this
        added_bytes, self.kept_bytes = kept_bytes - self.kept_bytes, kept_bytes
        if added_bytes >= 0:
            budget.take(added_bytes)
        else:
            budget.give_back(-added_bytes)
        if not is_midway:
            budget.end_run(self)
        self._is_midway = is_midway
        if not kept_bytes or budget.free_bytes > 0 or budget.runner is self:
            return True
        if is_midway and budget.runner is None:
            budget.runner = self
            return True
        budget.wait(self._retry, is_midway=is_midway)
        return False

    def is_stalled(self, received_bytes: int, now_s: float, *, is_held: bool) -> bool:
        """Say whether an incomplete request is stalled while others wait for its bytes.

        To be asked once a second. ``received_bytes``: all that the connection has received;
        ``is_held``: it is not read from, so that nothing can come.
        """
        is_going_on = received_bytes - self._bytes_before >= PROGRESS_BYTES
        is_needed = self._is_midway and self._budget.waiting_count > 0
        if is_going_on or is_held or not is_needed or self._progress_s is None:
            self._bytes_before, self._progress_s = received_bytes, now_s
        return now_s - self._progress_s > self._budget.stall_s_max

    def close(self) -> None:
        """Give all bytes back and stop waiting."""
        self._budget.leave(self._retry)
        kept_bytes, self.kept_bytes = self.kept_bytes, 0
        self._budget.give_back(kept_bytes)
        self._budget.end_run(self)
        self._retry = _nothing_to_retry  # a connection and its intake hold each other


def _nothing_to_retry() -> None:
    """Do nothing, in place of the callback of a closed connection."""
