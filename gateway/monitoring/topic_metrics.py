"""Metrics by topic: what goes in and out, and what is stored."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from gateway.kernel import Kernel
from gateway.metrics import OTHER, Sample
from gateway.monitoring.topic_traffic import Traffic
from gateway.topics.manager import Topic

LABELS: Final = ("namespace", "topic")
PARTITIONS_MAX: Final = 20_000
"""Partitions whose sizes are added up in a scrape; topics beyond them have no size."""

_COUNTERS: Final = (
    ("headgate_topic_records_in", "Records appended, by topic.", "records_in"),
    ("headgate_topic_bytes_in", "Bytes of batches appended, by topic.", "bytes_in"),
    ("headgate_topic_records_out", "Records handed to readers, by topic.", "records_out"),
    ("headgate_topic_bytes_out", "Bytes of batches handed to readers, by topic.", "bytes_out"),
)


def register_metrics(kernel: Kernel) -> None:
    """Register them; nothing is added up before a scrape."""
    for name, help_text, field in _COUNTERS:
        kernel.metrics.counters_fn(name, help_text, LABELS, _reader(kernel, field))
    kernel.metrics.gauges(
        "headgate_topic_bytes",
        "Bytes of a topic's batches in the storage.",
        LABELS,
        lambda: _stored(kernel, lambda topic: _size_bytes(kernel, topic)),
    )
    kernel.metrics.gauges(
        "headgate_topic_records",
        "Offsets between a topic's log starts and ends.",
        LABELS,
        lambda: _stored(kernel, lambda topic: _record_count(kernel, topic)),
    )


def _reader(kernel: Kernel, field: str) -> Callable[[], Iterable[Sample]]:
    traffic = kernel.broker.traffic

    def read() -> Iterator[Sample]:
        for name, one in tuple(traffic.named.items()):
            yield (name.namespace, name.name), getattr(one, field)
        if _is_used(traffic.others):
            yield (OTHER, OTHER), getattr(traffic.others, field)

    return read


def _is_used(traffic: Traffic) -> bool:
    return bool(traffic.records_in or traffic.records_out)


def _stored(kernel: Kernel, measure: Callable[[Topic], int]) -> Iterator[Sample]:
    """Yield a value for each named topic, as far as there are not too many partitions."""
    left = PARTITIONS_MAX
    for name in tuple(kernel.broker.traffic.named):
        topic = kernel.topics.find(name)
        if topic is not None and len(topic.partition_ids) <= left:
            left -= len(topic.partition_ids)
            yield (name.namespace, name.name), measure(topic)


def _size_bytes(kernel: Kernel, topic: Topic) -> int:
    return sum(map(kernel.broker.stored_bytes, topic.partition_ids))


def _record_count(kernel: Kernel, topic: Topic) -> int:
    bounds = map(kernel.broker.stored_bounds, topic.partition_ids)
    return sum(end - start for start, end in bounds)
