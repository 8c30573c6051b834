"""Matchers and checks of each exchange type."""

from collections.abc import Callable
from typing import Final, Protocol

from features.routing.delayed import check_delayed_type
from features.routing.destinations import Destinations
from features.routing.hashing import (
    HASH_HEADER,
    HASH_PROPERTY,
    ConsistentHash,
    ModulusHash,
    check_hash_arguments,
    check_weight,
)
from features.routing.headers import HeadersIndex, check_match
from features.routing.model import (
    ALTERNATE_EXCHANGE,
    Binding,
    Exchange,
    ExchangeType,
    InvalidExchange,
    Message,
    Table,
)
from features.routing.recent_history import history_length
from features.routing.simple import Choose, DirectMap, FanoutList, RandomChoice
from features.routing.topic_trie import TopicTrie


class Matcher(Protocol):
    """Bindings of one exchange, as its type matches them."""

    touched: int
    """Bindings and nodes looked at by all calls of ``match``."""

    def add(self, binding: Binding) -> None:
        """Add a binding that is not there."""
        ...

    def remove(self, binding: Binding) -> None:
        """Remove a binding that is there."""
        ...

    def match(self, message: Message, found: Destinations) -> None:
        """Add the destinations to which a message goes."""
        ...


_PLAIN: Final[dict[ExchangeType, Callable[[], Matcher]]] = {
    ExchangeType.DIRECT: DirectMap,
    ExchangeType.FANOUT: FanoutList,
    ExchangeType.TOPIC: TopicTrie,
    ExchangeType.HEADERS: HeadersIndex,
    ExchangeType.MODULUS_HASH: ModulusHash,
    ExchangeType.RECENT_HISTORY: FanoutList,
}
_BY_KEY_ONLY: Final = {
    ExchangeType.DIRECT,
    ExchangeType.FANOUT,
    ExchangeType.TOPIC,
    ExchangeType.MODULUS_HASH,
}


def new_matcher(exchange: Exchange, choose: Choose) -> Matcher:
    """Return the empty matcher of an exchange."""
    matching = exchange.matching_type
    if matching is ExchangeType.CONSISTENT_HASH:
        return ConsistentHash(exchange.arguments)
    plain = _PLAIN.get(matching)
    return RandomChoice(choose) if plain is None else plain()


def depends_on_key_only(exchange: Exchange) -> bool:
    """Say whether equal routing keys always lead to the same destinations."""
    if exchange.type is ExchangeType.CONSISTENT_HASH:
        return not {HASH_HEADER, HASH_PROPERTY}.intersection(exchange.arguments)
    return exchange.type in _BY_KEY_ONLY


def check_exchange(type_name: str, arguments: Table) -> ExchangeType:
    """Return the type of that name, its arguments checked. Error: ``InvalidExchange``."""
    try:
        exchange_type = ExchangeType(type_name)
    except ValueError:
        raise InvalidExchange(f"unknown exchange type {type_name[:100]!r}") from None
    alternate = arguments.get(ALTERNATE_EXCHANGE)
    if alternate is not None and not isinstance(alternate, str):
        raise InvalidExchange(f"{ALTERNATE_EXCHANGE} must be the name of an exchange")
    matching = exchange_type
    if exchange_type is ExchangeType.DELAYED:
        matching = check_delayed_type(arguments)
    if matching is ExchangeType.CONSISTENT_HASH:
        check_hash_arguments(arguments)
    if matching is ExchangeType.RECENT_HISTORY:
        history_length(arguments)
    return exchange_type


def check_binding(exchange: Exchange, binding: Binding) -> None:
    """Check that a binding suits the type of its source. Error: ``InvalidBinding``."""
    match exchange.matching_type:
        case ExchangeType.HEADERS:
            check_match(binding)
        case ExchangeType.CONSISTENT_HASH:
            check_weight(binding)
