"""Metrics, read when they are scraped.

Hot code keeps plain integers; a gauge or a pulled counter is a function that reads one when
Prometheus scrapes. What is rare counts through ``Counter``, with labels of bounded cardinality.
prometheus_client writes the text; it is imported at the first scrape, because an idle node that
nobody watches need not pay for it.
"""

import asyncio
import bisect
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from prometheus_client.core import Metric

LABEL_SETS_MAX: Final = 1_000
PREPARED_S: Final = 1.0
OTHER: Final = "other"
"""Label value under which everything is counted once a metric has ``LABEL_SETS_MAX`` others."""
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_NAME: Final = re.compile(r"headgate_[a-z][a-z0-9_]*")

Sample = tuple[tuple[str, ...], float]
Read = Callable[[], float]
ReadMany = Callable[[], Iterable[Sample]]


class Counter:
    """Counter of rare events, by label values."""

    __slots__ = ("_counts", "_labels")

    def __init__(self, labels: Sequence[str] = ()) -> None:
        self._labels = tuple(labels)
        self._counts: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}

    def inc(self, *values: str, by: float = 1) -> None:
        """Add ``by`` under the label values, given in the order of the labels."""
        if len(values) != len(self._labels):
            msg = f"{len(values)} label values for the labels {self._labels}"
            raise ValueError(msg)
        if values not in self._counts and len(self._counts) >= LABEL_SETS_MAX:
            values = (OTHER,) * len(values)
        self._counts[values] = self._counts.get(values, 0) + by

    def samples(self) -> list[Sample]:
        """Return every label set with its count."""
        return list(self._counts.items())


class Histogram:
    """Histogram of observations, for up to some thousand a second."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(sorted(bounds))
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        self._counts[bisect.bisect_left(self._bounds, value)] += 1
        self._sum += value

    def buckets(self) -> list[tuple[str, float]]:
        """Return (upper bound, observations at or below it), ``+Inf`` last."""
        total = 0
        found: list[tuple[str, float]] = []
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            found.append(("+Inf" if bound == float("inf") else repr(float(bound)), total))
        return found

    @property
    def sum(self) -> float:
        """Sum of all observations."""
        return self._sum


HistogramSample = tuple[tuple[str, ...], Histogram]
ReadHistograms = Callable[[], Iterable[HistogramSample]]


class _Entry(NamedTuple):
    kind: str
    name: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[], Iterable[Any]]
    """Returns samples, or the histograms of a "histogram"."""


class Metrics:
    """Metrics of one node. Names begin with ``headgate_``; a name is registered once."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self.before_scrape: list[Callable[[], Awaitable[None]]] = []
        """Measures what takes more than a turn of the loop; awaited before each scrape."""
        self._prepared_s = -math.inf
        self._preparing: asyncio.Future[None] | None = None

    async def prepare(self) -> None:
        """Run ``before_scrape``, once a second at most: several may scrape, or one too often."""
        if self._preparing is None:
            if asyncio.get_running_loop().time() < self._prepared_s + PREPARED_S:
                return
            self._preparing = asyncio.ensure_future(self._prepare())
            self._preparing.add_done_callback(self._on_prepared)
        await asyncio.shield(self._preparing)

    def _on_prepared(self, preparing: asyncio.Future[None]) -> None:
        self._preparing = None
        self._prepared_s = preparing.get_loop().time()

    async def _prepare(self) -> None:
        for measure in self.before_scrape:
            await measure()

    def gauge(self, name: str, help_text: str, read: Read) -> None:
        """Register a gauge; ``read`` runs on the loop at each scrape."""
        self._add(_Entry("gauge", name, help_text, (), _alone(read)))

    def gauges(self, name: str, help_text: str, labels: Sequence[str], read: ReadMany) -> None:
        """Register a gauge with labels; ``read`` returns (label values, value) pairs."""
        self._add(_Entry("gauge", name, help_text, tuple(labels), read))

    def counter_fn(self, name: str, help_text: str, read: Read) -> None:
        """Register a counter whose value ``read`` returns."""
        self._add(_Entry("counter", name, help_text, (), _alone(read)))

    def counters_fn(
        self, name: str, help_text: str, labels: Sequence[str], read: ReadMany
    ) -> None:
        """Register a counter with labels that is kept elsewhere."""
        self._add(_Entry("counter", name, help_text, tuple(labels), read))

    def counter(self, name: str, help_text: str, labels: Sequence[str] = ()) -> Counter:
        """Register and return a counter of rare events."""
        counter = Counter(labels)
        self._add(_Entry("counter", name, help_text, tuple(labels), counter.samples))
        return counter

    def histograms(
        self, name: str, help_text: str, labels: Sequence[str], read: ReadHistograms
    ) -> None:
        """Register histograms with labels; ``read`` returns (label values, histogram) pairs."""
        self._add(_Entry("histogram", name, help_text, tuple(labels), read))

    def histogram(self, name: str, help_text: str, bounds: Sequence[float]) -> Histogram:
        """Register and return a histogram with these upper bounds of its buckets."""
        histogram = Histogram(bounds)
        self._add(_Entry("histogram", name, help_text, (), lambda: [((), histogram)]))
        return histogram

    def read(self, name: str) -> list[Sample]:
        """Return the samples of one metric now; none where it is not registered."""
        entry = self._entries.get(name)
        if entry is None or entry.kind == "histogram":
            return []
        return list(_bounded(entry.read(), len(entry.labels)))

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format (``CONTENT_TYPE``)."""
        from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        ProcessCollector(registry=registry)  # CPU, memory, descriptors of the process
        return generate_latest(registry)

    def collect(self) -> Iterator["Metric"]:
        """Yield each metric's samples, as a collector of prometheus_client."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        for kind, name, help_text, labels, read in self._entries.values():
            if kind == "histogram":
                histograms = HistogramMetricFamily(name, help_text, labels=labels)
                for values, one in islice(read(), LABEL_SETS_MAX):
                    histograms.add_metric(values, one.buckets(), one.sum)
                yield histograms
                continue
            family_class = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
            family = family_class(name, help_text, labels=labels)
            for values, value in _bounded(read(), len(labels)):
                family.add_metric(values, value)
            yield family

    def _add(self, entry: _Entry) -> None:
        if entry.name in self._entries or not _NAME.fullmatch(entry.name):
            msg = f"metric {entry.name!r} is there already, or is not headgate_*"
            raise ValueError(msg)
        self._entries[entry.name] = entry


def _alone(read: Read) -> ReadMany:
    return lambda: [((), read())]


def _bounded(samples: Iterable[Sample], label_count: int) -> Iterator[Sample]:
    """Yield at most ``LABEL_SETS_MAX`` samples; the rest becomes one, labelled ``other``."""
    rest = 0.0
    others = 0
    for index, (values, value) in enumerate(samples):
        if index < LABEL_SETS_MAX:
            yield values, value
        else:
            others += 1
            rest += value
    if others:
        yield (OTHER,) * label_count, rest
