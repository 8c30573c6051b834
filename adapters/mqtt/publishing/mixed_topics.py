"""Append of mixed-topic messages: one append, without a run for each message.

Either all messages of a batch are appended here, or none. If one of them needs the common way (its
topic is refused or is not the key of its record, or its record is too large), each message is
published by itself, as if the packets had come one at a time.
"""

from collections.abc import Iterator
from itertools import repeat

from adapters.mqtt.access.client_access import ClientAccess
from adapters.mqtt.counters import Counters
from adapters.mqtt.delivery.distributor import Distributor
from adapters.mqtt.mapping import header_block
from adapters.mqtt.publishing.publishing import OnPublished
from adapters.mqtt.reading.feed_set import FeedSet
from adapters.mqtt.retained.store import RetainedStore
from adapters.mqtt.routes import RoutedTopic, Routes
from adapters.mqtt.wire import MixedTopicPublishes
from gateway.clock import Clock
from gateway.coalescer import BATCH_RECORDS_MAX, Coalescer, Part, batch_bytes_max
from gateway.errors import GatewayError
from gateway.model import HEADER_BYTES
from gateway.partition import Partition
from gateway.records.keyed import KeyedRecords

_Placed = dict[Partition, tuple[RoutedTopic, MixedTopicPublishes]]


class MixedTopicPublisher:
    """Appends mixed-topic batches. Runs on the loop; nothing here blocks."""

    def __init__(  # noqa: PLR0913, PLR0917 - its surroundings, made once
        self,
        clock: Clock,
        counters: Counters,
        coalescer: Coalescer,
        routes: Routes,
        feeds: FeedSet,
        distributor: Distributor,
        retained: RetainedStore,
    ) -> None:
        self._clock = clock
        self._counters = counters
        self._coalescer = coalescer
        self._routes = routes
        self._feeds = feeds
        self._distributor = distributor
        self._retained = retained

    def publish(
        self, mixed: MixedTopicPublishes, access: ClientAccess, on_done: OnPublished
    ) -> bool:
        """Append a batch; False, with nothing changed, when each message needs the common way.

        ``on_done`` as ``Publishing.publish`` has it, never before this returns.
        """
        if not access.rules_allow_all(mixed.topics, mixed.qos):
            return False
        try:
            placed = self._placed(mixed)
            log_topics = {routed.log_topic for routed, _ in placed.values()}
            if not placed or not access.may_write(log_topics):
                return False
            self._append(mixed, placed, on_done)
        except GatewayError:  # perhaps of one message: each is then answered by itself
            return False
        self._counters.publish_received += len(mixed.payloads)
        return True

    def _placed(self, mixed: MixedTopicPublishes) -> _Placed:
        """Return messages by partition, with one route each; empty when headers differ."""
        find, target = self._routes.find, self._feeds.target
        first = find(mixed.topics[0], mixed.qos)
        partition = target(first)
        if self._routes.are_plain and len(partition.topic.partition_ids) == 1:
            return {partition: (first, mixed)}
        found: _Placed = {}
        all_data = mixed.data or repeat(None)
        for topic, payload, data in zip(mixed.topics, mixed.payloads, all_data, strict=False):
            routed = find(topic, mixed.qos)
            if routed.topic_header:
                return {}
            partition = target(routed)
            if partition not in found:
                found[partition] = routed, mixed.part(slice(0))
            part = found[partition][1]
            part.topics.append(topic)
            part.payloads.append(payload)
            if data is not None:
                part.data.append(data)
        return found

    def _append(
        self, mixed: MixedTopicPublishes, placed: _Placed, on_done: OnPublished
    ) -> None:
        now_unix_ms = self._clock.unix_ms()
        parts: list[Part] = [
            (partition, records)
            for partition, (routed, part) in placed.items()
            for records in _records(partition, routed, part, now_unix_ms)
        ]
        if mixed.like.retain:
            items = self._retained.items_of(mixed, now_unix_ms)
            self._retained.put(items, on_done, beside=parts)
        else:
            self._coalescer.add_many(parts, on_done)
        # QoS 0 is delivered at once, and marked: see ``publishing``.
        for partition, records in () if mixed.qos else parts:
            native = records.native
            assert isinstance(native, MixedTopicPublishes)
            feed = self._feeds.get(partition.partition_id)
            if feed is not None:
                feed.slow_receivers.number(native)
                if self._distributor.wants_runs:
                    self._distributor.deliver_mixed_topics(native, feed)


def _records(
    partition: Partition, routed: RoutedTopic, part: MixedTopicPublishes, now_unix_ms: int
) -> Iterator[KeyedRecords]:
    """Yield the records of messages whose topics are their keys: no more than a batch takes.

    Who gets them live gets the messages of each batch with it, and none with two.
    """
    headers = header_block(part.like, routed, part.like.client_id)
    whole = KeyedRecords(part.topics, part.payloads, headers, now_unix_ms, part)
    bytes_max = batch_bytes_max(partition) - HEADER_BYTES
    places = whole.places(records_max=BATCH_RECORDS_MAX, bytes_max=bytes_max)
    if len(places) == 1:
        yield whole
        return
    for place in places:
        some = part.part(place)
        yield KeyedRecords(some.topics, some.payloads, headers, now_unix_ms, some)
