"""Quotas of one request: the bytes and the time that it is charged, and its throttle time."""

import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, TypeVar

from adapters.kafka.codec import RequestHeader
from adapters.kafka.session import Session
from gateway.errors import as_value
from gateway.quotas.meters import ClientLimits

_T = TypeVar("_T")
_NS_PER_PERCENT_S: Final = 10_000_000  # of a core: a hundredth of a second
_PRODUCE: Final = 0


class RequestMeter:
    """Charges of a request of a client that has quotas.

    ``throttle_ms`` is the longest of its throttles; it is final once ``settle`` was called. Time
    is that of the event loop's thread: waiting and work of other threads are free.
    """

    __slots__ = (
        "_depth",
        "_is_settled",
        "_limits",
        "_since_ns",
        "_spent_ns",
        "api_key",
        "throttle_ms",
        "version",
    )

    def __init__(self, limits: ClientLimits, api_key: int, version: int) -> None:
        self.api_key = api_key
        self.version = version
        self.throttle_ms = 0
        self._limits = limits
        self._depth = 0
        self._since_ns = 0
        self._spent_ns = 0
        self._is_settled = False

    # --- time

    def __enter__(self) -> None:
        """Begin to count time; a second time within, nothing changes."""
        if not self._depth:
            self._since_ns = time.perf_counter_ns()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        """Stop counting time."""
        self._depth -= 1
        if not self._depth:
            self._spent_ns += time.perf_counter_ns() - self._since_ns

    async def timed(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Await ``work``; its steps count, the waits between them do not."""
        return await _Steps(self, work)

    # --- charges

    def charge_produced(self, size_bytes: int) -> None:
        """Charge the bytes of a Produce request."""
        if self._limits.produced is not None:
            self.throttle(self._limits.produced.charge(size_bytes))

    def charge_fetched(self, size_bytes: int) -> None:
        """Charge records that are sent in any case."""
        if self._limits.consumed is not None:
            self.throttle(self._limits.consumed.charge(size_bytes))

    def fetch_bytes_max(self, bytes_max: int) -> int:
        """Return the bytes that a fetch may be answered with: what its quota can bear at once."""
        consumed = self._limits.consumed
        return bytes_max if consumed is None else min(bytes_max, max(int(consumed.burst), 1))

    def throttles_fetch(self, size_bytes: int) -> bool:
        """Charge the records of a fetch, and return whether it is to be answered without them.

        Then they are not charged.
        """
        consumed = self._limits.consumed
        if consumed is not None:
            self.throttle(consumed.charge(size_bytes))
        if not self.settle():
            return False
        if consumed is not None:
            consumed.refund(size_bytes)
        return True

    def settle(self, *, is_answered: bool = True) -> int:
        """Charge the time that the request took, once; return its throttle time.

        A request without an answer costs no time of its quota, as in Kafka.
        """
        if not self._is_settled:
            self._is_settled = True
            if self._limits.requests is not None and is_answered:
                if self._depth:
                    self._spent_ns += time.perf_counter_ns() - self._since_ns
                percent = self._spent_ns / _NS_PER_PERCENT_S
                self.throttle(self._limits.requests.charge(percent))
        return self.throttle_ms

    def throttle(self, wait_ms: int) -> None:
        """Throttle the client for so long at least."""
        self.throttle_ms = max(self.throttle_ms, wait_ms)


def meter_of(session: Session, header: RequestHeader, frame: memoryview) -> RequestMeter | None:
    """Return the meter of a request, with the bytes it produces charged; None without quotas."""
    if not session.is_authenticated:
        return None
    limits = session.node.quotas.of(session.principal.name, header.client_id)
    if not any(limits):
        return None
    meter = RequestMeter(limits, header.api_key, header.version)
    if header.api_key == _PRODUCE:
        meter.charge_produced(len(frame))
    return meter


class _Steps:
    """Awaitable that runs a coroutine, and counts the time of its steps."""

    __slots__ = ("_meter", "_work")

    def __init__(self, meter: RequestMeter, work: Coroutine[Any, Any, _T]) -> None:
        self._meter = meter
        self._work = work

    def __await__(self) -> Generator[Any, Any, Any]:
        work = self._work
        try:
            waited = self._step(work.send, None)
            while True:
                try:
                    value = yield waited
                except BaseException as error:  # noqa: BLE001 - passed on, as a cancellation
                    waited = self._step(work.throw, as_value(error))
                else:
                    waited = self._step(work.send, value)
        except StopIteration as end:
            return end.value

    def _step(self, resume: Callable[[Any], Any], value: object) -> object:
        with self._meter:
            return resume(value)
