"""Exchanges and bindings of the node: in memory, after they are durable in SQL.

A binding leads to a topic, which a queue may be on, or to another exchange of the same namespace.
The default exchange routes to the topic whose name is the routing key; it is always there and
cannot be bound. Loop only; changes are made one at a time, and show once durable.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Self

from features.routing.explaining import Explanation, explain
from features.routing.model import (
    ALTERNATE_EXCHANGE,
    DEFAULT_EXCHANGE,
    Binding,
    Destination,
    Exchange,
    ExchangeType,
    Message,
    Value,
    format_arguments,
    parse_arguments,
)
from features.routing.route import Route
from features.routing.types import check_exchange
from gateway.clock import Clock
from gateway.config.exchanges import ExchangeConfig
from gateway.errors import InvalidRequest, Overloaded, PolicyViolation, TopicNotFound
from gateway.exchanges.model import ExchangeName, ExchangeRow
from gateway.exchanges.reloading import reload_exchanges
from gateway.exchanges.routers import Routers
from gateway.exchanges.rows import arguments_text, check_equal, is_stored, to_binding_row
from gateway.exchanges.standard import (
    RESERVED,
    BindingNotFound,
    ExchangeInUse,
    check_new_name,
    check_text,
    shown,
)
from gateway.exchanges.standard import ExchangeNotFound as ExchangeNotFound  # noqa: PLC0414
from gateway.metadata.change_model import ChangeKind
from gateway.metadata.changes import Changes
from gateway.metadata.store import MetadataStore
from gateway.model import TopicName
from gateway.topics.manager import Topic, TopicManager

__all__ = ["Binding", "Destination", "Exchange", "Exchanges", "Message", "format_arguments"]


class Exchanges:
    """Manager of exchanges and bindings; ``route`` is what publishers ask."""

    def __init__(
        self,
        metadata: MetadataStore,
        topics: TopicManager,
        clock: Clock,
        config: ExchangeConfig,
    ) -> None:
        self._metadata = metadata
        self._topics = topics
        self._clock = clock
        self.config = config
        self._changes = Changes(metadata.feed)
        self._routers = Routers(config.routes_bytes_max, self._with_policy)
        self._router = self._routers.of
        self._rows: dict[ExchangeName, ExchangeRow] = {}
        self._binding_count = 0
        self._policy: Callable[[ExchangeName], str | None] = _no_alternate
        self.on_bound: list[Callable[[str, Binding], None]] = []
        """Callbacks for new bindings, with their namespace."""
        self.on_deleted: list[Callable[[ExchangeName], None]] = []
        """Callbacks for exchanges that were deleted."""

    @classmethod
    async def open(
        cls,
        metadata: MetadataStore,
        topics: TopicManager,
        clock: Clock,
        config: ExchangeConfig,
    ) -> Self:
        """Return the exchanges of the metadata store. Error: ``StorageUnavailable``."""
        exchanges = cls(metadata, topics, clock, config)
        reload = partial(reload_exchanges, exchanges, metadata)
        await reload(None)
        topics.on_deleted.append(exchanges._on_topic_deleted)
        exchanges._changes.follow(ChangeKind.EXCHANGE, reload)
        return exchanges

    async def close(self) -> None:
        """Wait for running changes."""
        await self._changes.close()

    # --- queries

    @property
    def binding_count(self) -> int:
        """Number of bindings in all namespaces."""
        return self._binding_count

    def bindings_from(self, name: ExchangeName) -> list[Binding]:
        """Return the bindings that have an exchange as their source, oldest first."""
        return self._router(name.namespace).bindings_from(name.name)

    def bindings_to(self, namespace: str, destination: Destination) -> list[Binding]:
        """Return the bindings that lead to a topic or an exchange, oldest first."""
        return self._router(namespace).bindings_to(destination)

    def binding_count_of(self, name: ExchangeName) -> int:
        """Return the number of bindings from an exchange."""
        return len(self._router(name.namespace).bindings_from(name.name))

    def revision(self, namespace: str) -> int:
        """Return the number that grows with each change of a namespace's routes."""
        router = self._routers.changed(namespace)
        return 0 if router is None else router.revision

    def find(self, name: ExchangeName) -> Exchange | None:
        """Return an exchange, standard ones included; the default exchange has none."""
        return self._router(name.namespace).find(name.name)

    def row(self, name: ExchangeName) -> ExchangeRow | None:
        """Return the stored row of an exchange that is not a standard one."""
        return self._rows.get(name)

    def exchanges(self, namespace: str) -> list[Exchange]:
        """Return a namespace's exchanges, sorted by name, without the default exchange."""
        found = self._router(namespace).exchanges()
        return sorted(found, key=lambda exchange: exchange.name)

    def bindings(self, namespace: str) -> list[Binding]:
        """Return a namespace's bindings, by exchange."""
        from_one = self._router(namespace).bindings_from
        return [
            one for exchange in self.exchanges(namespace) for one in from_one(exchange.name)
        ]

    def route(self, name: ExchangeName, message: Message) -> Route:
        """Return where a message goes. Errors: ``ExchangeNotFound``, ``PolicyViolation``.

        Names of the default exchange that are no topics are left out, and so are internal topics.
        """
        self._check_publish(name)
        return self._router(name.namespace).route(name.name, message)

    def explain(self, name: ExchangeName, message: Message) -> Explanation:
        """Return where a message goes, and why. Errors: those of ``route``."""
        self._check_publish(name)
        return explain(self._router(name.namespace), name.name, message)

    def _check_publish(self, name: ExchangeName) -> None:
        if name.name != DEFAULT_EXCHANGE:
            self._get(name)
            if (row := self._rows.get(name)) is not None and row.is_internal:
                raise PolicyViolation(f"cannot publish to internal exchange {name.name!r}")

    def follow(
        self, namespace: str, name: str, message: Message, *, is_due: bool = False
    ) -> Route:
        """Return where an exchange leads, an internal one or none, too.

        ``is_due``: the message has waited at this exchange.
        """
        return self._router(namespace).route(name, message, is_due=is_due)

    # --- policies

    def set_policy(self, alternate_of: Callable[[ExchangeName], str | None]) -> None:
        """Set the source of alternate exchanges for exchanges without one of their own."""
        self._policy = alternate_of
        self._routers.forget_unchanged()
        for namespace in self._routers.namespaces:
            self.renew_alternates(namespace)

    def renew_alternates(self, namespace: str) -> None:
        """Ask anew for the alternate exchanges of a namespace."""
        router = self._routers.to_change(namespace)
        for exchange in router.exchanges():
            router.put(self._with_policy(namespace, exchange))

    def _with_policy(self, namespace: str, exchange: Exchange) -> Exchange:
        own = exchange.arguments.get(ALTERNATE_EXCHANGE)
        if isinstance(own, str):
            return replace(exchange, alternate=own)
        return replace(exchange, alternate=self._policy(ExchangeName(namespace, exchange.name)))

    # --- changes

    async def declare(
        self,
        name: ExchangeName,
        type_name: str,
        arguments: Mapping[str, Value] | None = None,
        *,
        auto_delete: bool = False,
        is_internal: bool = False,
        is_durable: bool = True,
    ) -> bool:
        """Make an exchange unless an equal one is there; say whether it was made.

        One that is not durable is gone after a restart.
        Type, flags and alternate exchange decide whether they are equal. Errors:
        ``ExchangeExists`` for one that differs; ``InvalidExchange``, ``InvalidRequest``,
        ``PolicyViolation`` for a reserved name, ``Overloaded``, ``StorageUnavailable``.
        """
        check_new_name(name)
        found = arguments or {}
        kind = check_exchange(type_name, found)
        text = arguments_text(found, bytes_max=self.config.arguments_bytes_max)
        row = ExchangeRow(
            name, kind.value, text, auto_delete, is_internal, self._clock.unix_ms(), is_durable
        )
        return await self._changes.make(self._declare, row)

    async def alter(self, row: ExchangeRow) -> None:
        """Keep a changed row of an exchange; its type and bindings stay. ``StorageUnavailable``."""
        await self._changes.make(self._store, row)

    async def delete(self, name: ExchangeName, *, if_unused: bool = False) -> None:
        """Delete an exchange and its bindings.

        Errors: ``ExchangeNotFound``; ``PolicyViolation`` for a standard one, ``ExchangeInUse``.
        """
        await self._changes.make(self._delete, name, if_unused=if_unused)

    async def bind(self, namespace: str, binding: Binding) -> bool:
        """Add a binding unless it is there; say whether it was added.

        Errors: ``ExchangeNotFound``, ``TopicNotFound``, ``InvalidBinding``, ``InvalidRequest``,
        ``PolicyViolation``, ``Overloaded``, ``StorageUnavailable``.
        """
        check_text("routing key", binding.routing_key)
        try:
            arguments = binding.arguments
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"arguments: {error}") from error
        arguments_text(arguments, bytes_max=self.config.arguments_bytes_max)
        return await self._changes.make(self._bind, namespace, binding)

    async def unbind(self, namespace: str, binding: Binding) -> None:
        """Remove a binding. Errors: ``BindingNotFound``, ``StorageUnavailable``.

        An exchange made with ``auto_delete`` goes with the last binding from it.
        """
        for deletion in await self._changes.make(self._unbind, namespace, binding):
            with suppress(ExchangeNotFound, ExchangeInUse):  # somebody was faster
                await asyncio.shield(deletion)

    async def _declare(self, row: ExchangeRow) -> bool:
        if (known := self._rows.get(row.name)) is not None:
            check_equal(known, row)
            return False
        if len(self._rows) >= (most := self.config.exchanges_max):
            raise Overloaded(f"there are exchange.exchanges_max, {most}, exchanges")
        await self._store(row)
        return True

    async def _store(self, row: ExchangeRow) -> None:
        if row.is_durable:
            await self._metadata.put_exchange(row)
        self.keep(row)

    async def _delete(self, name: ExchangeName, *, if_unused: bool) -> None:
        if name.name == DEFAULT_EXCHANGE or name.name.startswith(RESERVED):
            raise PolicyViolation(
                f"deletion of system exchange {shown(name.name)!r} not allowed"
            )
        self._get(name)
        if if_unused and self.binding_count_of(name):
            raise ExchangeInUse(f"exchange {name.name!r} in use")
        if self._rows[name].is_durable:
            await self._metadata.delete_exchange(name)
        self._delete_unused(name.namespace, self.forget(name))

    def _delete_unused(
        self, namespace: str, removed: Iterable[Binding]
    ) -> list[asyncio.Task[None]]:
        """Delete the ``auto_delete`` exchanges that have lost their last binding."""
        names = dict.fromkeys(ExchangeName(namespace, binding.source) for binding in removed)
        return [
            self._changes.start(self._delete, name, if_unused=True)
            for name in names
            if (row := self._rows.get(name)) is not None
            and row.auto_delete
            and not self.binding_count_of(name)
        ]

    async def _bind(self, namespace: str, binding: Binding) -> bool:
        router = self._router(namespace)
        self._get(ExchangeName(namespace, binding.source))
        topic = self._destination(namespace, binding.destination)
        router.check(binding)
        if router.has(binding):
            return False
        if self._binding_count >= (most := self.config.bindings_max):
            raise Overloaded(f"there are exchange.bindings_max, {most}, bindings")
        if is_stored(namespace, binding, self._rows, self._topics):
            await self._metadata.add_binding(to_binding_row(namespace, binding, topic))
        if topic is not None and self._topics.by_uuid(topic.uuid) is not topic:
            raise TopicNotFound(f"topic {binding.destination.name} was deleted")
        self.add(namespace, binding)
        return True

    async def _unbind(self, namespace: str, binding: Binding) -> list[asyncio.Task[None]]:
        router = self._router(namespace)
        if not router.has(binding):
            raise BindingNotFound("no such binding")
        topic = self._destination(namespace, binding.destination)
        if is_stored(namespace, binding, self._rows, self._topics):
            await self._metadata.delete_binding(to_binding_row(namespace, binding, topic))
        self.drop(namespace, binding)
        return self._delete_unused(namespace, [binding])

    def _destination(self, namespace: str, destination: Destination) -> Topic | None:
        """Return the topic of a destination; None for an exchange, which is there."""
        if destination.is_exchange:
            self._get(ExchangeName(namespace, destination.name))
            return None
        topic = self._topics.get(TopicName(namespace, destination.name))
        if topic.is_internal:
            raise PolicyViolation(f"topic {destination.name} is internal")
        return topic

    def _get(self, name: ExchangeName) -> Exchange:
        if name.name == DEFAULT_EXCHANGE:
            raise PolicyViolation("operation not permitted on the default exchange")
        if (found := self.find(name)) is None:
            raise ExchangeNotFound(f"no exchange {name.name[:255]!r}")
        return found

    # --- memory

    @property
    def names(self) -> list[ExchangeName]:
        """Names of the exchanges that are not standard ones."""
        return list(self._rows)

    def keep(self, row: ExchangeRow) -> None:
        """Show an exchange as its row says; its type stays."""
        arguments = parse_arguments(row.arguments)
        router = self._routers.to_change(row.name.namespace)
        exchange = Exchange(row.name.name, ExchangeType(row.type), arguments)
        router.put(self._with_policy(row.name.namespace, exchange))
        self._rows[row.name] = row

    def forget(self, name: ExchangeName) -> list[Binding]:
        """Remove an exchange that is not stored, and return the bindings that went with it."""
        del self._rows[name]
        removed = self._router(name.namespace).remove(name.name)
        self._binding_count -= len(removed)
        for on_deleted in self.on_deleted:
            on_deleted(name)
        return removed

    def add(self, namespace: str, binding: Binding) -> None:
        """Show a binding, unless it is shown; its source is there."""
        if self._routers.to_change(namespace).bind(binding):
            self._binding_count += 1
            for on_bound in self.on_bound:
                on_bound(namespace, binding)

    def drop(self, namespace: str, binding: Binding) -> None:
        """Remove a binding that is not stored, if it is shown."""
        if self._router(namespace).unbind(binding):
            self._binding_count -= 1

    def stored_bindings(self, name: ExchangeName) -> list[Binding]:
        """Return the bindings from an exchange that outlive the process."""
        found = self._router(name.namespace).bindings_from(name.name)
        return [
            one for one in found if is_stored(name.namespace, one, self._rows, self._topics)
        ]

    def _on_topic_deleted(self, topic: Topic) -> None:
        if (router := self._routers.changed(topic.name.namespace)) is not None:
            removed = router.remove_queue(topic.name.name)
            self._binding_count -= len(removed)
            self._delete_unused(topic.name.namespace, removed)


def _no_alternate(_name: ExchangeName) -> None:
    """Return no alternate exchange: there are no policies."""
