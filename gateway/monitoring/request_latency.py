"""Latency of requests by API: one histogram each, and a sample for protocols of many messages."""

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, Final, Protocol, runtime_checkable

from gateway.metrics import Histogram

BOUNDS_S: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip


class RequestLatency:
    """Histograms of seconds by API. APIs are the code's own names, so their number is fixed."""

    __slots__ = ("_histograms", "_is_timing")

    def __init__(self) -> None:
        self._histograms: dict[str, Histogram] = {}
        self._is_timing = False

    def observe(self, api: str, seconds: float) -> None:
        """Count one request."""
        histogram = self._histograms.get(api)
        if histogram is None:
            histogram = self._histograms[api] = Histogram(BOUNDS_S)
        histogram.observe(seconds)

    def sampled(self, api: str, on_done: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``on_done``, timed if no other request is being timed.

        One request at a time is enough for the shape of a histogram, and costs the others a
        comparison. One that is never completed is given up at the next scrape.
        """
        if self._is_timing:
            return on_done
        self._is_timing = True
        return partial(self._done, api, perf_counter(), on_done)

    def _done(
        self, api: str, begun_s: float, on_done: Callable[..., Any], *results: object
    ) -> object:
        self._is_timing = False
        self.observe(api, perf_counter() - begun_s)
        return on_done(*results)

    def samples(self) -> list[tuple[str, Histogram]]:
        """Return the histograms by API; time the next sampled request, whatever comes first."""
        self._is_timing = False
        return list(self._histograms.items())


@runtime_checkable
class MeasuresLatency(Protocol):
    """Adapter that measures its requests, for ``headgate_request_seconds``."""

    @property
    def latency(self) -> RequestLatency:
        """The histograms of its requests."""
        ...
