"""Exchanges and bindings that other nodes have made, changed or deleted."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

from features.routing.model import Binding, Exchange
from gateway.exchanges.model import ExchangeName, ExchangeRow
from gateway.exchanges.rows import to_binding
from gateway.exchanges.standard import STANDARD
from gateway.metadata.change_model import parts_of
from gateway.metadata.store import MetadataStore


class ShownExchanges(Protocol):
    """Manager of exchanges, as this uses it."""

    @property
    def names(self) -> Sequence[ExchangeName]:
        """Names of the exchanges that are not standard ones."""
        ...

    def row(self, name: ExchangeName) -> ExchangeRow | None:
        """Return the row of an exchange that is not a standard one."""
        ...

    def find(self, name: ExchangeName) -> Exchange | None:
        """Return an exchange."""
        ...

    def keep(self, row: ExchangeRow) -> None:
        """Show an exchange as its row says; its type stays."""
        ...

    def forget(self, name: ExchangeName) -> Sequence[Binding]:
        """Remove an exchange that is not stored."""
        ...

    def stored_bindings(self, name: ExchangeName) -> Sequence[Binding]:
        """Return the bindings from an exchange that outlive the process."""
        ...

    def add(self, namespace: str, binding: Binding) -> None:
        """Show a binding."""
        ...

    def drop(self, namespace: str, binding: Binding) -> None:
        """Remove a binding that is not stored."""
        ...


async def reload_exchanges(
    exchanges: ShownExchanges, metadata: MetadataStore, keys: frozenset[str] | None
) -> None:
    """Make exchanges equal to their stored rows; see ``gateway.metadata.feed.Reload``.

    A key names an exchange, and the bindings from it. One that is not durable gives way to a
    stored one of its name.
    """
    named = None if keys is None else [ExchangeName(*parts_of(key)) for key in keys]
    texts = None if named is None else {name.name for name in named}
    rows = {row.name: row for row in await metadata.exchanges(texts)}
    bindings: defaultdict[ExchangeName, list[Binding]] = defaultdict(list)
    for binding in await metadata.bindings(texts):
        bindings[binding.source].append(to_binding(binding))
    wanted = _everything(exchanges, rows, bindings) if named is None else named
    for name in wanted:
        _reload_exchange(exchanges, exchanges.row(name), rows.get(name), name)
    for name in wanted:
        if exchanges.find(name) is not None:
            _reload_bindings(exchanges, name, bindings[name])


def _everything(
    exchanges: ShownExchanges,
    rows: dict[ExchangeName, ExchangeRow],
    bindings: dict[ExchangeName, list[Binding]],
) -> list[ExchangeName]:
    """Return the names of all exchanges that are stored, shown, or may have bindings."""
    shown = exchanges.names
    namespaces = {name.namespace for name in (*shown, *rows, *bindings)}
    standard = [ExchangeName(one, exchange.name) for one in namespaces for exchange in STANDARD]
    return [*dict.fromkeys((*standard, *shown, *rows, *bindings))]


def _reload_exchange(
    exchanges: ShownExchanges,
    known: ExchangeRow | None,
    stored: ExchangeRow | None,
    name: ExchangeName,
) -> None:
    if known is not None:
        is_gone = stored is None and known.is_durable
        is_another = stored is not None and (known.type != stored.type or not known.is_durable)
        if is_gone or is_another:
            exchanges.forget(name)
    if stored is not None and stored != known:
        exchanges.keep(stored)


def _reload_bindings(
    exchanges: ShownExchanges, name: ExchangeName, stored: Sequence[Binding]
) -> None:
    for binding in set(exchanges.stored_bindings(name)).difference(stored):
        exchanges.drop(name.namespace, binding)
    for binding in stored:
        exchanges.add(name.namespace, binding)
