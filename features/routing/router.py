"""Router: exchanges and bindings of one namespace, and the queues that a message goes to.

Exchanges that a message reaches are visited by a worklist, each once, so cycles of bindings end;
each queue gets the message once, however many bindings lead to it. An alternate exchange is
visited where no binding of its exchange matched.
"""

from typing import NamedTuple
from weakref import WeakValueDictionary

from features.routing.delayed import delay_ms_of
from features.routing.destinations import Destinations
from features.routing.model import (
    DEFAULT_EXCHANGE,
    Binding,
    Destination,
    Exchange,
    ExchangeType,
    Message,
)
from features.routing.route import Route, TargetSet
from features.routing.route_memo import RouteMemo
from features.routing.simple import Choose
from features.routing.types import Matcher, check_binding, depends_on_key_only, new_matcher


class Visit(NamedTuple):
    """Exchange that a message came to, and the destinations to which it went on from there.

    ``is_alternate``: no binding matched, and the one destination is the alternate exchange.
    """

    exchange: str
    destinations: Destinations
    is_alternate: bool


class _BoundExchange:
    """Exchange with its bindings."""

    __slots__ = ("bindings", "by_key_only", "exchange", "matcher")

    def __init__(self, exchange: Exchange, matcher: Matcher) -> None:
        self.exchange = exchange
        self.matcher = matcher
        self.bindings: dict[Binding, None] = {}
        self.by_key_only = depends_on_key_only(exchange)


class Router:
    """Exchanges of one namespace. The caller bounds their number and that of bindings.

    The default exchange is always there and has no bindings. ``revision`` grows with each change.
    ``choose`` is the source of chance of random exchanges. ``memo`` bounds what it remembers,
    together with other routers.
    """

    def __init__(self, *, choose: Choose, memo: RouteMemo | None = None) -> None:
        self._choose = choose
        self._memo = (memo or RouteMemo()).part()
        self._nodes: dict[str, _BoundExchange] = {}
        self._to: dict[Destination, dict[Binding, None]] = {}
        self._sets: WeakValueDictionary[tuple[str, ...], TargetSet] = WeakValueDictionary()
        self.revision = 0
        self.touched = 0
        """Exchanges, bindings and nodes looked at by all routes."""

    # --- exchanges and bindings

    def find(self, name: str) -> Exchange | None:
        """Return the exchange of that name; the default exchange has none."""
        node = self._nodes.get(name)
        return None if node is None else node.exchange

    def exchanges(self) -> list[Exchange]:
        """Return all exchanges, in order of creation."""
        return [node.exchange for node in self._nodes.values()]

    def put(self, exchange: Exchange) -> None:
        """Add an exchange, or replace one of the same type; bindings stay."""
        node = self._nodes.get(exchange.name)
        if node is None:
            assert exchange.name != DEFAULT_EXCHANGE
            matcher = new_matcher(exchange, self._choose)
            self._nodes[exchange.name] = _BoundExchange(exchange, matcher)
        else:
            assert node.exchange.type is exchange.type
            node.exchange = exchange
        self._changed()

    def remove(self, name: str) -> list[Binding]:
        """Remove an exchange with the bindings from it and to it, which are returned."""
        node = self._nodes[name]
        removed = node.bindings.copy()
        for binding in removed:
            self._forget_destination(binding)  # the matcher goes as a whole
        for binding in self.bindings_to(Destination(name, is_exchange=True)):
            self.unbind(binding)
            removed[binding] = None
        del self._nodes[name]
        self._changed()
        return list(removed)

    def remove_queue(self, name: str) -> list[Binding]:
        """Remove the bindings to a queue, which are returned."""
        removed = self.bindings_to(Destination(name))
        for binding in removed:
            self.unbind(binding)
        return removed

    def bindings_from(self, name: str) -> list[Binding]:
        """Return the bindings of an exchange as their source, oldest first."""
        node = self._nodes.get(name)
        return [] if node is None else list(node.bindings)

    def bindings_to(self, destination: Destination) -> list[Binding]:
        """Return the bindings that lead to a destination, oldest first."""
        return list(self._to.get(destination, ()))

    def has(self, binding: Binding) -> bool:
        """Say whether a binding is there."""
        return binding in self._to.get(binding.destination, ())

    def check(self, binding: Binding) -> None:
        """Check a binding of an exchange that is there. Error: ``InvalidBinding``."""
        check_binding(self._nodes[binding.source].exchange, binding)

    def bind(self, binding: Binding) -> bool:
        """Add a checked binding; return False when it is there already."""
        if self.has(binding):
            return False
        node = self._nodes[binding.source]
        node.bindings[binding] = None
        node.matcher.add(binding)
        self._to.setdefault(binding.destination, {})[binding] = None
        self._changed()
        return True

    def unbind(self, binding: Binding) -> bool:
        """Remove a binding; return False when it is not there."""
        if not self.has(binding):
            return False
        node = self._nodes[binding.source]
        del node.bindings[binding]
        node.matcher.remove(binding)
        self._forget_destination(binding)
        self._changed()
        return True

    def _forget_destination(self, binding: Binding) -> None:
        leading = self._to[binding.destination]
        del leading[binding]
        if not leading:
            del self._to[binding.destination]

    def _changed(self) -> None:
        self.revision += 1
        self._memo.clear()

    # --- routes

    def route(self, name: str, message: Message, *, is_due: bool = False) -> Route:
        """Return where a message goes that is published to an exchange.

        An exchange that is not there routes nowhere. ``is_due``: the message has waited at this
        exchange; no exchange delays it again.
        """
        memo_key = (name, tuple(message.routing_keys))
        known = self._memo.young.get(memo_key) or self._memo.find_old(memo_key)
        if known is not None:
            return known
        walk = _Walk(self._nodes, message, 0 if is_due else delay_ms_of(message.headers))
        found = self._result(walk, name)
        if walk.by_key_only:
            self._memo.put(memo_key, found)
        return found

    def forget_routes(self) -> None:
        """Forget what is remembered: the router is not used any more."""
        self._memo.clear()

    def trace(
        self, name: str, message: Message, *, is_due: bool = False
    ) -> tuple[Route, list[Visit]]:
        """Return where a message goes, as ``route``, and the exchanges that it comes to.

        What routes remember is neither read nor changed.
        """
        walk = _TracedWalk(self._nodes, message, 0 if is_due else delay_ms_of(message.headers))
        return self._result(walk, name), walk.visits

    def _result(self, walk: "_Walk", name: str) -> Route:
        walk.visit(name)
        self.touched += walk.touched
        return Route(
            self._interned(walk.queues),
            tuple(walk.delayed),
            walk.delay_ms if walk.delayed else 0,
            tuple(walk.remembered),
        )

    def _interned(self, queues: dict[str, None]) -> TargetSet:
        names = tuple(sorted(queues))
        found = self._sets.get(names)
        if found is None:
            found = self._sets[names] = TargetSet(names)
        return found


class _Walk:
    """One message's way over exchanges."""

    def __init__(
        self, nodes: dict[str, _BoundExchange], message: Message, delay_ms: int
    ) -> None:
        self._nodes = nodes
        self._message = message
        self.delay_ms = delay_ms
        self.queues: dict[str, None] = {}
        self.delayed: list[str] = []
        self.remembered: list[str] = []
        self.by_key_only = True
        self.touched = 0

    def visit(self, name: str) -> None:
        """Visit an exchange and all that follow from it."""
        seen = {name}
        waiting = [name]
        while waiting:
            for destination in self._leave(waiting.pop()):
                if not destination.is_exchange:
                    self.queues[destination.name] = None
                elif destination.name not in seen:
                    seen.add(destination.name)
                    waiting.append(destination.name)

    def _leave(self, name: str) -> Destinations:
        """Return the destinations of one exchange, or its alternate exchange."""
        self.touched += 1
        found = Destinations()
        if name == DEFAULT_EXCHANGE:
            for key in self._message.routing_keys:
                found.add(Destination(key))
            return found
        node = self._nodes.get(name)
        if node is None:
            return found
        self.by_key_only = self.by_key_only and node.by_key_only
        exchange = node.exchange
        if exchange.type is ExchangeType.DELAYED and self.delay_ms:
            self.delayed.append(name)
            return found
        if exchange.matching_type is ExchangeType.RECENT_HISTORY:
            self.remembered.append(name)
        before = node.matcher.touched
        node.matcher.match(self._message, found)
        self.touched += node.matcher.touched - before
        if not found and exchange.alternate is not None:
            self._to_alternate(exchange.alternate, found)
        return found

    def _to_alternate(self, alternate: str, found: Destinations) -> None:
        found.add(Destination(alternate, is_exchange=True))


class _TracedWalk(_Walk):
    """One message's way, with the exchanges on it in the order of the visits."""

    def __init__(
        self, nodes: dict[str, _BoundExchange], message: Message, delay_ms: int
    ) -> None:
        super().__init__(nodes, message, delay_ms)
        self.visits: list[Visit] = []
        self._is_alternate = False

    def _leave(self, name: str) -> Destinations:
        self._is_alternate = False
        found = super()._leave(name)
        self.visits.append(Visit(name, found, self._is_alternate))
        return found

    def _to_alternate(self, alternate: str, found: Destinations) -> None:
        self._is_alternate = True
        super()._to_alternate(alternate, found)
