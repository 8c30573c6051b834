"""Exclusive, time-bound rights: a resource has one holder, until the lease ends.

A queue's lock of one consumer, the single active consumer of a queue, and a role in a cluster are
such rights. A holder renews its lease before it ends, or takes it without an end and gives it back
when its connection closes. Others may wait: the next is the one of the highest priority, then the
oldest. Each grant has a higher number than those before it, so that a resource can refuse what a
former holder sends late.

Times are monotonic milliseconds. Leases give progress, not safety: a holder that was stopped for
long does not know that its lease has ended, and the grant's number tells it apart.
"""

import heapq
from collections.abc import Hashable
from itertools import count
from typing import Final, Generic, NamedTuple, TypeVar

from gateway.errors import Overloaded

Resource = TypeVar("Resource", bound=Hashable)
LeaseHolder = TypeVar("LeaseHolder", bound=Hashable)

_STALE_MIN: Final = 1_024  # entries of the heap that hold no more, below which they stay


class Grant(NamedTuple, Generic[Resource, LeaseHolder]):
    """Right to a resource. ``ends_ms`` is None for one without an end."""

    resource: Resource
    holder: LeaseHolder
    number: int
    ends_ms: int | None


class Turnover(NamedTuple, Generic[Resource, LeaseHolder]):
    """Changes of holders: the rights that ended, and those that waiting holders got."""

    ended: list[Grant[Resource, LeaseHolder]]
    granted: list[Grant[Resource, LeaseHolder]]


class _Candidate(NamedTuple, Generic[LeaseHolder]):
    order: tuple[int, int]  # priority, the highest first, then age
    holder: LeaseHolder
    span_ms: int | None


class Leases(Generic[Resource, LeaseHolder]):
    """Rights and candidates, each at most ``leases_max``."""

    def __init__(self, *, leases_max: int) -> None:
        self._leases_max = leases_max
        self._grants: dict[Resource, Grant[Resource, LeaseHolder]] = {}
        self._held: dict[LeaseHolder, dict[Resource, None]] = {}
        self._candidates: dict[Resource, list[_Candidate[LeaseHolder]]] = {}
        self._waits_for: dict[LeaseHolder, dict[Resource, None]] = {}
        self._waiting_count = 0
        self._heap: list[tuple[int, int, Resource]] = []
        self._numbers = count(1)
        self._ages = count()

    def __len__(self) -> int:
        return len(self._grants)

    @property
    def waiting_count(self) -> int:
        """Number of candidates of all resources."""
        return self._waiting_count

    def grant_of(self, resource: Resource, now_ms: int) -> Grant[Resource, LeaseHolder] | None:
        """Return the right to a resource that holds at this time."""
        grant = self._grants.get(resource)
        return None if grant is None or _has_ended(grant, now_ms) else grant

    def resources_of(self, holder: LeaseHolder) -> list[Resource]:
        """Return the resources that a holder has, also those whose end nobody has noticed."""
        return list(self._held.get(holder, ()))

    def awaited_by(self, holder: LeaseHolder) -> list[Resource]:
        """Return the resources that a holder waits for."""
        return list(self._waits_for.get(holder, ()))

    def next_end_ms(self) -> int | None:
        """Return the time of the next end, None if no right ends by itself."""
        while self._heap and not self._is_current(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(
        self, resource: Resource, holder: LeaseHolder, now_ms: int, *, span_ms: int | None
    ) -> Grant[Resource, LeaseHolder] | None:
        """Take a resource that is free, or renew one's own; None when another holds it.

        A renewal keeps the number. Call ``expire`` before: a right whose time has come, but that
        nobody has ended, still is its holder's. Error: ``Overloaded`` at the bound.
        """
        known = self._grants.get(resource)
        if known is None:
            if len(self._grants) >= self._leases_max:
                raise Overloaded(f"{self._leases_max} leases are held")
            return self._new(resource, holder, _end(now_ms, span_ms))
        if known.holder != holder:
            return None
        return self._put(known._replace(ends_ms=_end(now_ms, span_ms)))

    def wait(
        self,
        resource: Resource,
        holder: LeaseHolder,
        now_ms: int,
        *,
        span_ms: int | None,
        priority: int = 0,
    ) -> Grant[Resource, LeaseHolder] | None:
        """Take a resource, or wait for it; None when it has to wait.

        A holder that waits already stays where it is; call ``expire`` before.
        Error: ``Overloaded`` at the bound.
        """
        grant = self.take(resource, holder, now_ms, span_ms=span_ms)
        if grant is not None or resource in self._waits_for.get(holder, ()):
            return grant
        if self._waiting_count >= self._leases_max:
            raise Overloaded(f"{self._leases_max} holders wait for leases")
        candidate = _Candidate((-priority, next(self._ages)), holder, span_ms)
        heapq.heappush(self._candidates.setdefault(resource, []), candidate)
        self._waits_for.setdefault(holder, {})[resource] = None
        self._waiting_count += 1
        return None

    def release(
        self, resource: Resource, holder: LeaseHolder, now_ms: int
    ) -> Turnover[Resource, LeaseHolder]:
        """Give a right back, or stop to wait for it; the next candidate gets it."""
        self._stop_waiting(resource, holder)
        turnover: Turnover[Resource, LeaseHolder] = Turnover([], [])
        grant = self._grants.get(resource)
        if grant is not None and grant.holder == holder:
            self._pass_on(grant, now_ms, turnover)
        return turnover

    def end_holder(self, holder: LeaseHolder, now_ms: int) -> Turnover[Resource, LeaseHolder]:
        """Give all rights of a holder back, and stop all its waiting: it has gone."""
        for resource in self.awaited_by(holder):
            self._stop_waiting(resource, holder)
        turnover: Turnover[Resource, LeaseHolder] = Turnover([], [])
        for resource in self.resources_of(holder):
            self._pass_on(self._grants[resource], now_ms, turnover)
        return turnover

    def expire(self, resource: Resource, now_ms: int) -> Turnover[Resource, LeaseHolder]:
        """End the right to one resource if its time has come, and pass it on."""
        turnover: Turnover[Resource, LeaseHolder] = Turnover([], [])
        grant = self._grants.get(resource)
        if grant is not None and _has_ended(grant, now_ms):
            self._pass_on(grant, now_ms, turnover)
        return turnover

    def tick(self, now_ms: int, *, count_max: int) -> Turnover[Resource, LeaseHolder]:
        """End the rights whose time has come, at most so many, and pass them on."""
        turnover: Turnover[Resource, LeaseHolder] = Turnover([], [])
        while len(turnover.ended) < count_max:
            ends_ms = self.next_end_ms()
            if ends_ms is None or ends_ms > now_ms:
                break
            _, _, resource = heapq.heappop(self._heap)
            self._pass_on(self._grants[resource], now_ms, turnover)
        return turnover

    def _pass_on(
        self,
        grant: Grant[Resource, LeaseHolder],
        now_ms: int,
        turnover: Turnover[Resource, LeaseHolder],
    ) -> None:
        self._remove(grant)
        turnover.ended.append(grant)
        waiting = self._candidates.get(grant.resource)
        if waiting:
            following = heapq.heappop(waiting)
            self._forget_wait(grant.resource, following.holder)
            ends_ms = _end(now_ms, following.span_ms)
            turnover.granted.append(self._new(grant.resource, following.holder, ends_ms))

    def _stop_waiting(self, resource: Resource, holder: LeaseHolder) -> None:
        if resource not in self._waits_for.get(holder, ()):
            return
        waiting = self._candidates[resource]
        waiting[:] = [one for one in waiting if one.holder != holder]
        heapq.heapify(waiting)
        self._forget_wait(resource, holder)

    def _forget_wait(self, resource: Resource, holder: LeaseHolder) -> None:
        self._waiting_count -= 1
        if not self._candidates[resource]:
            del self._candidates[resource]
        awaited = self._waits_for[holder]
        del awaited[resource]
        if not awaited:
            del self._waits_for[holder]

    def _new(
        self, resource: Resource, holder: LeaseHolder, ends_ms: int | None
    ) -> Grant[Resource, LeaseHolder]:
        self._held.setdefault(holder, {})[resource] = None
        return self._put(Grant(resource, holder, next(self._numbers), ends_ms))

    def _put(self, grant: Grant[Resource, LeaseHolder]) -> Grant[Resource, LeaseHolder]:
        self._grants[grant.resource] = grant
        if grant.ends_ms is not None:
            heapq.heappush(self._heap, (grant.ends_ms, next(self._ages), grant.resource))
            if len(self._heap) > 2 * len(self._grants) + _STALE_MIN:
                self._heap = [one for one in self._heap if self._is_current(one)]
                heapq.heapify(self._heap)
        return grant

    def _remove(self, grant: Grant[Resource, LeaseHolder]) -> None:
        del self._grants[grant.resource]
        held = self._held[grant.holder]
        del held[grant.resource]
        if not held:
            del self._held[grant.holder]

    def _is_current(self, entry: tuple[int, int, Resource]) -> bool:
        ends_ms, _, resource = entry
        grant = self._grants.get(resource)
        return grant is not None and grant.ends_ms == ends_ms


def _end(now_ms: int, span_ms: int | None) -> int | None:
    return None if span_ms is None else now_ms + span_ms


def _has_ended(grant: Grant[Resource, LeaseHolder], now_ms: int) -> bool:
    return grant.ends_ms is not None and grant.ends_ms <= now_ms
