"""Leaser: exclusive, time-bound rights of this node's clients, in memory.

A client takes a resource, renews its lease in time, or waits for its turn. Rights end with their
time or with their holder; a restart ends all of them. ``features.leases`` has the rules; here are
the clock and the callbacks. Loop only.
"""

from collections.abc import Callable, Hashable, Iterable
from contextlib import AsyncExitStack
from typing import Final

from features.leases import Grant, Leases, Turnover
from gateway.clock import Clock
from gateway.deadlines import Deadlines

LEASES_MAX: Final = 100_000
"""Rights of a node, and as many candidates; above it ``Overloaded`` is raised."""
_ENDS_PER_TURN_MAX: Final = 1_000

Right = Grant[Hashable, Hashable]
OnGranted = Callable[[Right], None]
OnEnded = Callable[[Right], None]


class Leaser:
    """Rights to resources, by name. Names and holders are hashable values of the caller.

    Begin the name with what it is for: ``("rocketmq.queue", group, topic, 3)``.
    """

    def __init__(self, clock: Clock, *, leases_max: int = LEASES_MAX) -> None:
        self._clock = clock
        self._leases: Leases[Hashable, Hashable] = Leases(leases_max=leases_max)
        self._on_granted: dict[tuple[Hashable, Hashable], OnGranted] = {}
        self._on_ended: dict[tuple[Hashable, Hashable], OnEnded] = {}
        self._deadlines: Deadlines[Leaser] = Deadlines(clock, Leaser._tick)

    def __len__(self) -> int:
        return len(self._leases)

    def holder_of(self, resource: Hashable) -> Hashable | None:
        """Return the holder of a resource, None while nobody has it."""
        grant = self._leases.grant_of(resource, self._clock.monotonic_ms())
        return None if grant is None else grant.holder

    def resources_of(self, holder: Hashable) -> list[Hashable]:
        """Return the resources that a holder has."""
        now_ms = self._clock.monotonic_ms()
        return [
            one
            for one in self._leases.resources_of(holder)
            if self._leases.grant_of(one, now_ms) is not None
        ]

    def take(
        self,
        resource: Hashable,
        holder: Hashable,
        *,
        span_ms: int | None,
        on_ended: OnEnded | None = None,
    ) -> Right | None:
        """Take or renew a right for a span, or without an end; None when another holds it.

        ``on_ended`` is called once when the right ends by its time; a renewal may replace it.
        Error: ``Overloaded`` at the bound.
        """
        now_ms = self._clock.monotonic_ms()
        self._turn_over(self._leases.expire(resource, now_ms))
        grant = self._leases.take(resource, holder, now_ms, span_ms=span_ms)
        if grant is not None:
            self._watch(grant, on_ended)
        return grant

    def take_many(
        self, resources: Iterable[Hashable], holder: Hashable, *, span_ms: int
    ) -> list[Hashable]:
        """Take or renew several rights; return the resources that the holder has then.

        Error: ``Overloaded`` at the bound; the rights that were taken before it stay.
        """
        return [one for one in resources if self.take(one, holder, span_ms=span_ms) is not None]

    def wait(
        self,
        resource: Hashable,
        holder: Hashable,
        on_granted: OnGranted,
        *,
        span_ms: int | None = None,
        priority: int = 0,
        on_ended: OnEnded | None = None,
    ) -> Right | None:
        """Take a right, or wait for it; ``on_granted`` is called when it comes later.

        The highest priority is next, then who has waited longest. Error: ``Overloaded``.
        """
        now_ms = self._clock.monotonic_ms()
        self._turn_over(self._leases.expire(resource, now_ms))
        grant = self._leases.wait(resource, holder, now_ms, span_ms=span_ms, priority=priority)
        if grant is not None:
            self._watch(grant, on_ended)
            return grant
        self._on_granted[resource, holder] = on_granted
        if on_ended is not None:
            self._on_ended[resource, holder] = on_ended
        return None

    def release(self, resource: Hashable, holder: Hashable) -> None:
        """Give a right back or stop to wait for it; one that is not there is no error."""
        self._on_granted.pop((resource, holder), None)
        self._on_ended.pop((resource, holder), None)
        now_ms = self._clock.monotonic_ms()
        self._turn_over(self._leases.release(resource, holder, now_ms))

    def end_holder(self, holder: Hashable) -> None:
        """Give back all that a holder has, and stop all its waiting: it has gone.

        Its own callbacks are not called.
        """
        leases = self._leases
        for resource in (*leases.resources_of(holder), *leases.awaited_by(holder)):
            self._on_granted.pop((resource, holder), None)
            self._on_ended.pop((resource, holder), None)
        self._turn_over(leases.end_holder(holder, self._clock.monotonic_ms()))

    def run_due(self) -> None:
        """End the rights whose time has come; the timer calls it."""
        self._deadlines.run_due()

    def close(self) -> None:
        """Stop the timer; nothing ends any more."""
        self._deadlines.close()

    def _watch(self, grant: Right, on_ended: OnEnded | None) -> None:
        if on_ended is not None:
            self._on_ended[grant.resource, grant.holder] = on_ended
        self._deadlines.arm(self, grant.ends_ms)

    def _tick(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._turn_over(self._leases.tick(now_ms, count_max=_ENDS_PER_TURN_MAX))
        self._deadlines.arm(self, self._leases.next_end_ms())

    def _turn_over(self, turnover: Turnover[Hashable, Hashable]) -> None:
        for grant in turnover.ended:
            on_ended = self._on_ended.pop((grant.resource, grant.holder), None)
            if on_ended is not None:
                on_ended(grant)
        for grant in turnover.granted:
            self._deadlines.arm(self, grant.ends_ms)
            on_granted = self._on_granted.pop((grant.resource, grant.holder), None)
            if on_granted is not None:
                on_granted(grant)


def start_leaser(clock: Clock, stack: AsyncExitStack) -> Leaser:
    """Return a leaser that is closed with the stack."""
    leaser = Leaser(clock)
    stack.callback(leaser.close)
    return leaser
