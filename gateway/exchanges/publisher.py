"""Publishing through an exchange: one atomic append to all topics that a message goes to."""

import asyncio
from collections.abc import Sequence

import structlog

from features.routing.model import Binding, Message
from features.routing.router import Route
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.coalescer import Coalescer, Part
from gateway.errors import GatewayError, PolicyViolation, StorageUnavailable
from gateway.exchanges.history import Histories, Publication
from gateway.exchanges.manager import Exchanges
from gateway.exchanges.model import ExchangeName
from gateway.model import TopicName
from gateway.records.codec import encode_headers
from gateway.records.record_run import RecordRun
from gateway.slots import partition_for_key
from gateway.storage import OnDone
from gateway.topics.manager import Topic, TopicManager

__all__ = ["Message", "Publication", "Publisher"]

_log = structlog.get_logger()


class Publisher:
    """Publishes through exchanges. Loop only."""

    def __init__(
        self,
        exchanges: Exchanges,
        topics: TopicManager,
        broker: Broker,
        coalescer: Coalescer,
        clock: Clock,
    ) -> None:
        self.exchanges = exchanges
        self._topics = topics
        self._broker = broker
        self._coalescer = coalescer
        self._clock = clock
        self._config = exchanges.config
        self._loop = asyncio.get_running_loop()
        self._histories = Histories(exchanges, exchanges.config.history_bytes_max)
        exchanges.on_bound.append(self._replay)
        exchanges.on_deleted.append(self._histories.forget)

    def publish(
        self, exchange: ExchangeName, publication: Publication, on_done: OnDone
    ) -> list[Topic]:
        """Append messages to every topic that they go to, all in one append or none.

        Return the topics, sorted by name; without one the messages are unroutable and nothing is
        appended. ``on_done`` runs once, after this has returned, when the append is durable.
        Errors, with nothing appended: those of ``Exchanges.route`` and ``Coalescer.add_many``;
        ``PolicyViolation`` above `exchange.targets_max` topics.
        """
        route = self.exchanges.route(exchange, publication.routed)
        topics = self.targets(exchange.namespace, route)
        self._append(topics, publication, on_done)
        for name in route.remembered:
            self._histories.put(ExchangeName(exchange.namespace, name), publication)
        return topics

    def targets(self, namespace: str, route: Route) -> list[Topic]:
        """Return the topics of a route, without names that are no topics or are internal."""
        found = (self._topics.find(TopicName(namespace, name)) for name in route.targets)
        return [topic for topic in found if topic is not None and not topic.is_internal]

    def _append(
        self, topics: Sequence[Topic], publication: Publication, on_done: OnDone
    ) -> None:
        if not topics:
            self._loop.call_soon(on_done, None)
            return
        if len(topics) > self._config.targets_max:
            raise PolicyViolation(
                f"the messages go to {len(topics)} topics, "
                f"exchange.targets_max is {self._config.targets_max}"
            )
        self._coalescer.add_many(self._parts(topics, publication), on_done)

    def _replay(self, namespace: str, binding: Binding) -> None:
        """Append what a recent-history exchange remembers to a new destination of it."""
        remembered = self._histories.of(ExchangeName(namespace, binding.source))
        destination = binding.destination
        for publication in remembered:
            routed = publication.routed
            try:
                if destination.is_exchange:
                    route = self.exchanges.follow(namespace, destination.name, routed)
                    topics = self.targets(namespace, route)
                else:
                    topics = [self._topics.get(TopicName(namespace, destination.name))]
                self._append(topics, publication, _ignore)
            except GatewayError as error:
                _log.warning(
                    "recent history not replayed", exchange=binding.source, error=str(error)
                )

    def _parts(self, topics: Sequence[Topic], publication: Publication) -> list[Part]:
        key = publication.record_key
        headers = encode_headers(publication.headers)
        now_unix_ms = self._clock.unix_ms()
        parts: list[Part] = []
        for topic in topics:
            count = len(topic.partition_ids)
            number = 0 if count == 1 or key is None else partition_for_key(key, count)
            partition = self._broker.partition(topic, number)
            parts.append((partition, RecordRun(key, publication.values, headers, now_unix_ms)))
        return parts


def _ignore(_error: StorageUnavailable | None) -> None:
    """Let a failed replay be: nobody waits for it, and a failed write stops the node."""
