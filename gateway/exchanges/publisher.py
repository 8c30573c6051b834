"""Publishing through an exchange: one atomic append to all topics that a message goes to."""

import asyncio
from collections.abc import Sequence

import structlog

from features.routing.model import DEFAULT_EXCHANGE, Binding, Message
from features.routing.waiting import WAITING_HEADER, WaitingMessage, format_waiting
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.coalescer import Coalescer, Part
from gateway.errors import (
    GatewayError,
    NotLeader,
    Overloaded,
    PolicyViolation,
    StorageUnavailable,
)
from gateway.exchanges.full_queues import (
    alike_count,
    refused,
    refused_if,
    taking,
    with_room,
)
from gateway.exchanges.history import Histories, Publication
from gateway.exchanges.manager import Exchanges
from gateway.exchanges.model import ExchangeName
from gateway.exchanges.plans import Plan, Plans, number_of
from gateway.exchanges.standard import named
from gateway.model import Headers, TopicName
from gateway.records.codec import encode_headers
from gateway.records.record_run import RecordRun
from gateway.slots import shard_of_exchange
from gateway.storage import OnDone
from gateway.topics.manager import Topic, TopicManager
from gateway.transfer.payload import Addressed
from gateway.transfer.transfers import Transfers

__all__ = ["Message", "Publication", "Publisher"]

_log = structlog.get_logger()


class Publisher:
    """Publishes through exchanges. Loop only."""

    def __init__(  # noqa: PLR0917 - the parts of the kernel that it needs
        self,
        exchanges: Exchanges,
        topics: TopicManager,
        broker: Broker,
        coalescer: Coalescer,
        transfers: Transfers,
        clock: Clock,
    ) -> None:
        self.exchanges = exchanges
        self._topics = topics
        self._broker = broker
        self._coalescer = coalescer
        self._transfers = transfers
        self._clock = clock
        self._config = exchanges.config
        self._loop = asyncio.get_running_loop()
        self._histories = Histories(exchanges, exchanges.config.history_bytes_max)
        self.delay_topic: Topic | None = None
        """Topic in whose delays messages of delayed exchanges wait."""
        self.plans = Plans(topics, broker, coalescer)
        """Topics of routes."""
        exchanges.on_bound.append(self._replay)
        exchanges.on_deleted.append(self._histories.forget)

    def publish(
        self, exchange: ExchangeName, publication: Publication, on_done: OnDone
    ) -> list[Topic]:
        """Append messages to every topic that they go to, all in one append or none.

        In this node's log they are stored once for all topics. Topics of other nodes get them
        later, once: ``gateway.transfer``. One that has no room is left out: ``full_queues``.

        Return the topics, sorted by name; without one the messages are unroutable and nothing is
        appended, unless they wait at a delayed exchange. ``on_done`` runs once, after this has
        returned, when the append is durable; with ``PublishRefused`` where a full queue has not
        taken them, and the others have.
        Errors, with nothing appended: those of ``Exchanges.route`` and ``Coalescer.add_many``;
        ``PolicyViolation`` above `exchange.targets_max` topics.
        """
        route = self.exchanges.route(exchange, publication.routed)
        plan = self.plans.of(exchange.namespace, route)
        topics = plan.topics
        if self._broker.append_limits:
            plan, on_done = self._without_full(plan, publication, on_done)
        waiting = [
            self._waiting(ExchangeName(exchange.namespace, name), publication, route.delay_ms)
            for name in route.delayed
        ]
        try:
            self._append(exchange, plan, publication, on_done, waiting)
        except (Overloaded, PolicyViolation):
            if not self._append_without_held(exchange, plan, publication, on_done, waiting):
                raise
        for name in route.remembered:
            self._histories.put(ExchangeName(exchange.namespace, name), publication)
        return topics

    def _append_without_held(
        self,
        exchange: ExchangeName,
        plan: Plan,
        publication: Publication,
        on_done: OnDone,
        waiting: Sequence[Part],
    ) -> bool:
        """Append to the topics that have room; return False where all have it, or none."""
        run = self._run(publication)
        held = with_room(self._broker, plan.topics, run)
        if not held.topics or not held.full:
            return False
        refusals: list[bool] = []
        on_done = refused_if(refusals, on_done)
        self._append(exchange, Plan(plan.revision, held.topics), publication, on_done, waiting)
        refusals += held.overflow(self._broker, run, publication.headers)
        return True

    def alike_count(self, exchange: ExchangeName, publication: Publication) -> int:
        """Return how many of the first messages are taken, or refused, by the same queues.

        Mostly that is all. Who publishes them by that many learns of each what became of it.
        """
        limits = self._broker.append_limits
        if not limits:
            return len(publication.values)
        try:
            route = self.exchanges.route(exchange, publication.routed)
        except GatewayError:  # ``publish`` raises it
            return len(publication.values)
        topics = self.plans.of(exchange.namespace, route).topics
        return alike_count(limits, topics, self._run(publication))

    def _without_full(
        self, plan: Plan, publication: Publication, on_done: OnDone
    ) -> tuple[Plan, OnDone]:
        """Return a plan without the queues that refuse the messages."""
        limits = self._broker.append_limits
        topics = taking(limits, plan.topics, self._run(publication), publication.headers)
        if len(topics) == len(plan.topics):
            return plan, on_done
        return Plan(plan.revision, topics), refused(on_done)

    def publish_all(
        self,
        publications: Sequence[tuple[ExchangeName, Publication]],
        on_done: OnDone,
        *,
        beside: Sequence[Part] = (),
    ) -> list[list[Topic]]:
        """Publish messages of several kinds, all in one append or none.

        Return the topics of each. ``beside``: what else is part of the append, which is then made
        at once: ``on_done`` may run before this returns, with a refusal. Otherwise, and errors, as
        ``publish``.
        """
        runs: list[tuple[Plan, RecordRun]] = []
        waiting: list[Part] = []
        routes = [self.exchanges.route(name, one.routed) for name, one in publications]
        for (exchange, one), route in zip(publications, routes, strict=True):
            plan = self.plans.of(exchange.namespace, route)
            self._check_count(plan.topics)
            runs.append((plan, self._run(one)))
            waiting += [
                self._waiting(ExchangeName(exchange.namespace, name), one, route.delay_ms)
                for name in route.delayed
            ]
        self._append_all(publications, runs, waiting, on_done, beside)
        if beside:
            self._coalescer.seal()
        for (exchange, one), route in zip(publications, routes, strict=True):
            for name in route.remembered:
                self._histories.put(ExchangeName(exchange.namespace, name), one)
        return [plan.topics for plan, _ in runs]

    def _append_all(
        self,
        publications: Sequence[tuple[ExchangeName, Publication]],
        runs: Sequence[tuple[Plan, RecordRun]],
        waiting: Sequence[Part],
        on_done: OnDone,
        beside: Sequence[Part],
    ) -> None:
        if self._transfers.in_one_log:
            parts = [
                (self.plans.group(plan, run.key), run) for plan, run in runs if plan.topics
            ]
            self._coalescer.add_many([*parts, *waiting, *beside], on_done)
            return
        addressed = [
            Addressed(topic, number_of(topic, run.key), run)
            for plan, run in runs
            for topic in plan.topics
        ]
        if not addressed:
            self._coalescer.add_many([*waiting, *beside], on_done)
            return
        if waiting:  # in this node's log, and not as one with those of other nodes
            on_done = both_of(on_done)
            self._coalescer.add_many(waiting, on_done)
        self._append_across(publications[0][0], addressed, on_done, beside)

    def dead_letter_topics(
        self, namespace: str, exchange: str, routing_keys: Sequence[str], headers: Headers
    ) -> list[Topic]:
        """Return where dead letters go; see ``gateway.queues.dead_letter_targets``.

        An internal exchange takes them, too, and a delayed one routes them at once. Headers are
        texts, or bytes where they are not UTF-8.
        """
        name = named(exchange)
        if name != DEFAULT_EXCHANGE and not self.exchanges.find(ExchangeName(namespace, name)):
            return []
        table = {header: _text_or_bytes(value) for header, value in headers}
        message = Message(routing_keys, table)
        route = self.exchanges.follow(namespace, name, message, is_due=True)
        topics = self.plans.of(namespace, route).topics
        self._check_count(topics)
        return topics

    def _append(
        self,
        exchange: ExchangeName,
        plan: Plan,
        publication: Publication,
        on_done: OnDone,
        waiting: Sequence[Part] = (),
    ) -> None:
        topics = plan.topics
        if not topics:
            self._coalescer.add_many(waiting, on_done)
            return
        self._check_count(topics)
        run = self._run(publication)
        if self._transfers.in_one_log:
            self._coalescer.add_many(
                [(self.plans.group(plan, run.key), run), *waiting], on_done
            )
            return
        if waiting:  # in this node's log, and not as one with those of other nodes
            on_done = both_of(on_done)
            self._coalescer.add_many(waiting, on_done)
        addressed = [Addressed(topic, number_of(topic, run.key), run) for topic in topics]
        self._append_across(exchange, addressed, on_done)

    def _run(self, publication: Publication) -> RecordRun:
        headers = encode_headers(publication.headers)
        return RecordRun(
            publication.record_key, publication.values, headers, self._clock.unix_ms()
        )

    def _waiting(self, exchange: ExchangeName, publication: Publication, delay_ms: int) -> Part:
        """Return messages that wait at a delayed exchange as part of an append."""
        topic = self.delay_topic
        if topic is None:
            raise StorageUnavailable("delayed exchanges are being opened")
        routed = WaitingMessage(exchange.namespace, exchange.name, publication.routed)
        headers = [*publication.headers, (WAITING_HEADER, format_waiting(routed))]
        now_unix_ms = self._clock.unix_ms()
        run = RecordRun(
            publication.record_key, publication.values, encode_headers(headers), now_unix_ms
        )
        run.deliver_at_unix_ms = now_unix_ms + delay_ms
        return self._broker.partition(topic, self._source(exchange)), run

    def due_topics(self, waiting: WaitingMessage) -> list[Topic]:
        """Return where a message goes that waited; see ``gateway.queues.due_target``."""
        namespace, exchange, message = waiting
        route = self.exchanges.follow(namespace, exchange, message, is_due=True)
        topics = self.plans.of(namespace, route).topics
        self._check_count(topics)
        return topics

    def _check_count(self, topics: Sequence[Topic]) -> None:
        if len(topics) > self._config.targets_max:
            raise PolicyViolation(
                f"the messages go to {len(topics)} topics, "
                f"exchange.targets_max is {self._config.targets_max}"
            )

    def _append_across(
        self,
        exchange: ExchangeName,
        addressed: Sequence[Addressed],
        on_done: OnDone,
        beside: Sequence[Part] = (),
    ) -> None:
        """Append to partitions of which other nodes may own some, as one decision."""
        transfers = self._transfers
        source = self._source(exchange)
        for one in addressed:
            transfers.check(one, self._coalescer)
        if all(transfers.is_direct(source, one.topic, one.number) for one in addressed):
            partition = self._broker.partition
            parts = [(partition(one.topic, one.number), one.run) for one in addressed]
            self._coalescer.add_many([*self._coalescer.join(parts), *beside], on_done)
        else:
            transfers.append(
                source, addressed, on_done, beside=beside, coalescer=self._coalescer
            )

    def _source(self, exchange: ExchangeName) -> int:
        """Return the shard of this node that keeps the order of an exchange's messages.

        Error: ``NotLeader`` when no shard is open.
        """
        count = self._broker.placement.shard_count
        first = shard_of_exchange(exchange.namespace, exchange.name, count)
        if self._transfers.in_one_log:
            return first
        opened = self._transfers.open_shards
        for distance in range(count):
            shard = (first + distance) % count
            if shard in opened:
                return shard
        raise NotLeader("this node has no shard to publish from")

    def _replay(self, namespace: str, binding: Binding) -> None:
        """Append what a recent-history exchange remembers to a new destination of it."""
        remembered = self._histories.of(ExchangeName(namespace, binding.source))
        destination = binding.destination
        for publication in remembered:
            routed = publication.routed
            try:
                if destination.is_exchange:
                    route = self.exchanges.follow(namespace, destination.name, routed)
                    plan = self.plans.of(namespace, route)
                else:
                    topic = self._topics.get(TopicName(namespace, destination.name))
                    plan = Plan(self._topics.revision, [topic])
                source = ExchangeName(namespace, binding.source)
                self._append(source, plan, publication, _ignore)
            except GatewayError as error:
                _log.warning(
                    "recent history not replayed", exchange=binding.source, error=str(error)
                )


def both_of(on_done: OnDone) -> OnDone:
    """Return a callback for two appends, which calls ``on_done`` after both."""
    errors: list[StorageUnavailable | None] = []

    def one(error: StorageUnavailable | None) -> None:
        errors.append(error)
        if len(errors) > 1:
            on_done(errors[0] or errors[1])

    return one


def _text_or_bytes(value: bytes | None) -> str | bytes | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _ignore(_error: StorageUnavailable | None) -> None:
    """Let a failed replay be: nobody waits for it, and a failed write stops the node."""
