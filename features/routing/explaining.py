"""Explanation of a route: the exchanges on a message's way, and why each binding matches or not.

The way is that of the router itself (``Router.trace``), and whether a binding matches is asked of
the matcher of its exchange's type; only the words are made here. An answer is bounded: so many
exchanges and bindings, those that lead on first.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from features.routing.destinations import Destinations
from features.routing.hashing import HASH_HEADER, HASH_PROPERTY
from features.routing.headers import met_conditions, parse_match
from features.routing.model import (
    DEFAULT_EXCHANGE,
    Binding,
    Exchange,
    ExchangeType,
    Message,
)
from features.routing.route import Route
from features.routing.router import Router, Visit
from features.routing.types import new_matcher

STEPS_MAX: Final = 100
BINDINGS_MAX: Final = 200
_CHOOSING: Final = {
    ExchangeType.CONSISTENT_HASH,
    ExchangeType.MODULUS_HASH,
    ExchangeType.RANDOM,
    ExchangeType.LOCAL_RANDOM,
}
"""Types that send a message to one of all bindings."""


class BindingReason(NamedTuple):
    """Binding of an exchange that a message came to, and why it matches or not."""

    binding: Binding
    matches: bool
    reason: str


class RouteStep(NamedTuple):
    """Exchange that a message comes to.

    ``exchange``: None for the default exchange, and where there is none of the name. ``source``:
    the exchange before it, None for the first; ``is_alternate``: it is the source's alternate
    exchange. ``left_out``: number of bindings without a reason. ``outcome``: the whole in words.
    """

    name: str
    exchange: Exchange | None
    source: str | None
    is_alternate: bool
    reasons: list[BindingReason]
    left_out: int
    outcome: str


class Explanation(NamedTuple):
    """Route of a message with the steps that lead to it.

    ``later``: the route once the message has waited at delayed exchanges; otherwise ``route``.
    ``steps`` are those of ``later``, in the order of the visits. ``left_out``: number of steps.
    """

    route: Route
    later: Route
    steps: list[RouteStep]
    left_out: int


def explain(
    router: Router, name: str, message: Message, *, bindings_max: int = BINDINGS_MAX
) -> Explanation:
    """Explain where a message goes that is published to an exchange.

    At most ``STEPS_MAX`` exchanges and ``bindings_max`` bindings of all together are explained.
    An exchange that chooses by chance may choose otherwise the next time.
    """
    route, visits = router.trace(name, message)
    later = route
    if route.delayed:
        later, visits = router.trace(name, message, is_due=True)
    sources: dict[str, tuple[str | None, bool]] = {name: (None, False)}
    steps = []
    room = bindings_max
    for visit in visits[:STEPS_MAX]:
        for one in visit.destinations:
            if one.is_exchange:
                sources.setdefault(one.name, (visit.exchange, visit.is_alternate))
        step = _step(router, visit, message, sources[visit.exchange], room)
        if visit.exchange in route.delayed:
            waits = f"the message waits here for {route.delay_ms} ms, then: {step.outcome}"
            step = step._replace(outcome=waits)
        room -= len(step.reasons)
        steps.append(step)
    return Explanation(route, later, steps, len(visits) - len(steps))


def _step(
    router: Router, visit: Visit, message: Message, source: tuple[str | None, bool], room: int
) -> RouteStep:
    exchange = router.find(visit.exchange)
    bindings = router.bindings_from(visit.exchange)
    reasons: list[BindingReason] = []
    if exchange is not None:
        leading = Destinations() if visit.is_alternate else visit.destinations
        bindings.sort(key=lambda one: one.destination not in leading)  # stable: oldest first
        reasons = list(_reasons(exchange, bindings[: max(room, 0)], message, leading))
    left_out = len(bindings) - len(reasons)
    outcome = _outcome(visit, exchange, has_bindings=bool(bindings))
    return RouteStep(visit.exchange, exchange, *source, reasons, left_out, outcome)


def _outcome(visit: Visit, exchange: Exchange | None, *, has_bindings: bool) -> str:
    if visit.exchange == DEFAULT_EXCHANGE:
        return "the default exchange leads to the queue whose name is the routing key"
    if exchange is None:
        return "there is no exchange of this name: the message ends here"
    none = "no binding matches" if has_bindings else "it has no bindings"
    if visit.is_alternate:
        return f"{none}: its alternate exchange gets the message"
    if not visit.destinations:
        return f"{none}, and it has no alternate exchange: the message ends here"
    count = len(visit.destinations)
    return f"the message goes on to {count} destination{'' if count == 1 else 's'}"


# --- reasons


def _reasons(
    exchange: Exchange, bindings: Iterable[Binding], message: Message, leading: Destinations
) -> Iterable[BindingReason]:
    kind = exchange.matching_type
    if kind in _CHOOSING:
        for index, binding in enumerate(bindings):  # of those that lead on the oldest is first
            is_chosen = index == 0 and binding.destination in leading
            yield BindingReason(binding, is_chosen, _chosen(exchange, binding, is_chosen))
        return
    words = _WORDS[kind]
    for binding in bindings:
        matcher = new_matcher(exchange, _first)
        matcher.add(binding)
        found = Destinations()
        matcher.match(message, found)
        yield BindingReason(binding, bool(found), words(binding, message, bool(found)))


def _first(_count: int) -> int:
    return 0


def _chosen(exchange: Exchange, binding: Binding, is_chosen: bool) -> str:  # noqa: FBT001
    kind = exchange.matching_type
    if kind in {ExchangeType.RANDOM, ExchangeType.LOCAL_RANDOM}:
        if is_chosen:
            return "chosen by chance: the next message may go elsewhere"
        return "not chosen this time; all bindings have the same chance"
    hashed, weight = "the routing key", ""
    if kind is ExchangeType.CONSISTENT_HASH:
        for argument, noun in ((HASH_HEADER, "header"), (HASH_PROPERTY, "property")):
            if isinstance(named := exchange.arguments.get(argument), str):
                hashed = f"the {noun} {named}"
        weight = f", whose weight is {binding.routing_key}"
    if is_chosen:
        return f"the hash of {hashed} chooses it{weight}"
    return f"the hash of {hashed} chooses another one"


_Words = Callable[[Binding, Message, bool], str]


def _key(message: Message) -> str:
    return "the routing key" if len(message.routing_keys) == 1 else "one of the routing keys"


def _direct(_binding: Binding, message: Message, matches: bool) -> str:  # noqa: FBT001
    if matches:
        return f"its key is {_key(message)}"
    return f"its key is not {_key(message)}"


def _topic(_binding: Binding, message: Message, matches: bool) -> str:  # noqa: FBT001
    if matches:
        return f"its pattern matches {_key(message)}"
    return f"its pattern does not match {_key(message)}"


def _every(_binding: Binding, _message: Message, _matches: bool) -> str:  # noqa: FBT001
    return "the exchange sends every message to every binding"


def _headers(binding: Binding, message: Message, matches: bool) -> str:  # noqa: FBT001
    kind, conditions = parse_match(binding)
    if not conditions:
        every = "every message" if matches else "no message"
        return f"x-match={kind} without arguments matches {every}"
    met = met_conditions(message.headers)
    if kind.startswith("any"):
        names = [name for name, value in conditions if (name, value) in met]
        if names:
            return f"x-match={kind}: the header {_quoted(names[0])} is met"
        return f"x-match={kind}: no header is met"
    unmet = [name for name, value in conditions if (name, value) not in met]
    if not unmet:
        return f"x-match={kind}: all headers are met"
    how = "has another value" if unmet[0] in message.headers else "is missing"
    return f"x-match={kind}: the header {_quoted(unmet[0])} {how}"


def _quoted(name: str) -> str:
    return repr(name[:80])


_WORDS: Final[dict[ExchangeType, _Words]] = {
    ExchangeType.DIRECT: _direct,
    ExchangeType.FANOUT: _every,
    ExchangeType.TOPIC: _topic,
    ExchangeType.HEADERS: _headers,
    ExchangeType.RECENT_HISTORY: _every,
}
