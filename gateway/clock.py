"""Clock port: durations are monotonic, stored deadlines are unix milliseconds."""

import time
from bisect import bisect_right
from typing import Final, Protocol

STEP_MS_MIN: Final = 500  # less is no step: deadlines of peers are in whole seconds
STEPS_MAX: Final = 1_000  # remembered; of older ones the last counts


class Clock(Protocol):
    """Clock of the node. Tests use a ``ManualClock``."""

    def unix_ms(self) -> int:
        """Milliseconds since 1970. Never goes backwards within a process."""
        ...

    def wall_unix_ms(self) -> int:
        """Return the time of the machine's clock, which may have been set back.

        Use it to compare with times of other clocks, as in a signature or a policy: after a step
        backwards ``unix_ms`` stands still and is ahead of all of them.
        """
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

    def deadline_unix_ms(self, span_ms: int) -> int:
        """Return a deadline to store, for others to read too: ``span_ms`` after ``unix_ms``.

        Where a step backwards holds ``unix_ms`` level, it goes on as if nobody had stepped.
        """
        ...

    def steady_deadline(self, deadline_unix_ms: int, stamped_unix_ms: int) -> int:
        """Return a stored deadline as ``steady_unix_ms``, corrected for clock steps.

        ``stamped_unix_ms`` is what ``unix_ms`` said when the deadline was made. What was made
        before the process began, or by who goes by a clock of his own, has seen no steps but
        those before that time.
        """
        ...

    def unix_ms_ago(self, span_ms: int) -> int:
        """Return the value of ``unix_ms`` a span ago, without clock steps."""
        ...


class _Steps:
    """Difference of steady time and unix time, and the unix times of its changes."""

    def __init__(self) -> None:
        self.highest_unix_ms = 0
        self.ahead_ms = 0
        self._begins: list[int] = []  # unix times from which on the next of ``_aheads`` holds
        self._ends: list[int] = []  # the highest unix time before each
        self._aheads = [0]

    def note(self, unix_ms: int, ahead_ms: int) -> None:
        """Take note of a new highest unix time, and of a step if it differs from steady time."""
        if not -STEP_MS_MIN < ahead_ms - self.ahead_ms < STEP_MS_MIN:
            # Held level after a step backwards, it has said nothing else before it ran again.
            is_backwards = ahead_ms > self.ahead_ms
            self._begins.append(self.highest_unix_ms + 1 if is_backwards else unix_ms)
            self.ahead_ms = ahead_ms
            self._ends.append(self.highest_unix_ms)
            self._aheads.append(ahead_ms)
            if len(self._begins) > STEPS_MAX:
                del self._begins[0], self._ends[0], self._aheads[0]
        self.highest_unix_ms = unix_ms

    def ahead_at(self, unix_ms: int) -> int:
        """Return the difference of steady time and unix time at a unix time."""
        return self._aheads[bisect_right(self._begins, unix_ms)]

    def unix_ms_at(self, steady_ms: int) -> int:
        """Return the unix time at a steady time; the highest so far after a step backwards."""
        at = len(self._begins)
        while at and steady_ms - self._aheads[at] < self._begins[at - 1]:
            at -= 1
        unix_ms = steady_ms - self._aheads[at]
        if at == len(self._ends):
            return min(unix_ms, self.highest_unix_ms)
        is_before_backwards = self._aheads[at] < self._aheads[at + 1]
        return min(unix_ms, self._ends[at]) if is_before_backwards else unix_ms

    def running_unix_ms(self, unix_ms: int, steady_ms: int) -> int:
        """Return the present unix time, as if no step backwards had held it."""
        running_ms = steady_ms - self.ahead_ms
        return running_ms if running_ms - unix_ms >= STEP_MS_MIN else unix_ms


class SystemClock:
    """Clocks of the machine; after a step backwards, unix time stands still."""

    def __init__(self) -> None:
        self._steps = _Steps()
        self._start_ns = time.time_ns() - time.monotonic_ns()

    def unix_ms(self) -> int:
        """See ``Clock``. After a step backwards it stands still until the clock has caught up."""
        now = time.time_ns() // 1_000_000
        steps = self._steps
        if now > steps.highest_unix_ms:
            steps.note(now, self.steady_unix_ms() - now)
        return steps.highest_unix_ms

    def wall_unix_ms(self) -> int:
        """See ``Clock``."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """See ``Clock``."""
        return time.monotonic_ns() // 1_000_000

    def steady_unix_ms(self) -> int:
        """See ``Clock``."""
        return (self._start_ns + time.monotonic_ns()) // 1_000_000

    def deadline_unix_ms(self, span_ms: int) -> int:
        """See ``Clock``."""
        now = self.unix_ms()
        return self._steps.running_unix_ms(now, self.steady_unix_ms()) + span_ms

    def steady_deadline(self, deadline_unix_ms: int, stamped_unix_ms: int) -> int:
        """See ``Clock``."""
        self.unix_ms()  # it may have been stepped since somebody asked last
        return deadline_unix_ms + self._steps.ahead_at(stamped_unix_ms)

    def unix_ms_ago(self, span_ms: int) -> int:
        """See ``Clock``."""
        self.unix_ms()
        return self._steps.unix_ms_at(self.steady_unix_ms() - span_ms)


class ManualClock:
    """Clock that a test advances; both times move together, except in steps."""

    def __init__(self, unix_ms: int = 1_700_000_000_000) -> None:
        self._unix_ms = unix_ms
        self._start_unix_ms = unix_ms
        self._monotonic_ms = 0
        self._steps = _Steps()

    def unix_ms(self) -> int:
        """See ``Clock``. After a step backwards it stands still, as the machine's does."""
        if self._unix_ms > self._steps.highest_unix_ms:
            self._steps.note(self._unix_ms, self.steady_unix_ms() - self._unix_ms)
        return self._steps.highest_unix_ms

    def wall_unix_ms(self) -> int:
        """See ``Clock``."""
        return self._unix_ms

    def monotonic_ms(self) -> int:
        """See ``Clock``."""
        return self._monotonic_ms

    def steady_unix_ms(self) -> int:
        """See ``Clock``."""
        return self._start_unix_ms + self._monotonic_ms

    def deadline_unix_ms(self, span_ms: int) -> int:
        """See ``Clock``."""
        now = self.unix_ms()
        return self._steps.running_unix_ms(now, self.steady_unix_ms()) + span_ms

    def steady_deadline(self, deadline_unix_ms: int, stamped_unix_ms: int) -> int:
        """See ``Clock``."""
        self.unix_ms()
        return deadline_unix_ms + self._steps.ahead_at(stamped_unix_ms)

    def unix_ms_ago(self, span_ms: int) -> int:
        """See ``Clock``."""
        self.unix_ms()
        return self._steps.unix_ms_at(self.steady_unix_ms() - span_ms)

    def begin_anew(self) -> None:
        """Forget all steps, as the clock of a new process."""
        self._start_unix_ms = self._unix_ms - self._monotonic_ms
        self._steps = _Steps()

    def advance(self, ms: int) -> None:
        """Let ``ms`` milliseconds pass."""
        self._unix_ms += ms
        self._monotonic_ms += ms

    def step_unix(self, ms: int) -> None:
        """Set the wall clock: only unix time jumps, forwards or back."""
        self._unix_ms += ms
