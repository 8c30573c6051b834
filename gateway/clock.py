"""Time as a port: durations are monotonic, stored deadlines are unix milliseconds."""

import time
from typing import Protocol


class Clock(Protocol):
    """What the time is. Tests hand in a ``ManualClock``."""

    def unix_ms(self) -> int:
        """Milliseconds since 1970. Never goes backwards within a process."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment; for durations, unaffected by clock steps."""
        ...

    def steady_unix_ms(self) -> int:
        """Unix time at the process's start plus what has passed since: it knows no steps.

        For deadlines that are kept in the process and stored as unix milliseconds: a lease
        neither ends early nor lasts longer because somebody sets the clock.
        """
        ...


class SystemClock:
    """The machine's clocks, with steps backwards held level."""

    def __init__(self) -> None:
        self._highest_unix_ms = 0
        self._start_ns = time.time_ns() - time.monotonic_ns()

    def unix_ms(self) -> int:
        """See ``Clock``. After a step backwards it stands still until the clock has caught up."""
        now = time.time_ns() // 1_000_000
        if now < self._highest_unix_ms:
            return self._highest_unix_ms
        self._highest_unix_ms = now
        return now

    def monotonic_ms(self) -> int:
        """See ``Clock``."""
        return time.monotonic_ns() // 1_000_000

    def steady_unix_ms(self) -> int:
        """See ``Clock``."""
        return (self._start_ns + time.monotonic_ns()) // 1_000_000


class ManualClock:
    """A clock that a test moves by hand. Both times move together unless stepped apart."""

    def __init__(self, unix_ms: int = 1_700_000_000_000) -> None:
        self._unix_ms = unix_ms
        self._start_unix_ms = unix_ms
        self._monotonic_ms = 0

    def unix_ms(self) -> int:
        """See ``Clock``."""
        return self._unix_ms

    def monotonic_ms(self) -> int:
        """See ``Clock``."""
        return self._monotonic_ms

    def steady_unix_ms(self) -> int:
        """See ``Clock``."""
        return self._start_unix_ms + self._monotonic_ms

    def advance(self, ms: int) -> None:
        """Let ``ms`` milliseconds pass."""
        self._unix_ms += ms
        self._monotonic_ms += ms

    def step_unix(self, ms: int) -> None:
        """Somebody sets the wall clock: only unix time jumps, forwards or back."""
        self._unix_ms += ms
