"""Published messages, and those that recent-history exchanges remember, in memory."""

from collections.abc import Sequence
from dataclasses import dataclass

from features.routing.model import Message
from features.routing.recent_history import RecentHistory, history_length, is_remembered
from gateway.exchanges.manager import Exchanges
from gateway.exchanges.model import ExchangeName
from gateway.model import Headers


@dataclass(frozen=True, slots=True)
class Publication:
    """Messages that are published together: they differ in their values only.

    ``routed``: the parts that routing looks at. ``headers`` are those of the records. ``key`` is
    the records' key; None: the routing key's bytes, and no key if that is empty.
    """

    routed: Message
    values: Sequence[bytes | None]
    headers: Headers = ()
    key: bytes | None = None

    @property
    def record_key(self) -> bytes | None:
        """The key of the records."""
        return (
            self.key if self.key is not None else self.routed.routing_keys[0].encode() or None
        )

    @property
    def size_bytes(self) -> int:
        """Bytes of values and headers, and of the fields around them."""
        values = sum(len(value or b"") + _FIELDS_BYTES for value in self.values)
        headers = sum(
            len(name) + len(value or b"") + _FIELDS_BYTES for name, value in self.headers
        )
        return values + headers + _FIELDS_BYTES


_FIELDS_BYTES = 200


class Histories:
    """Messages remembered by all recent-history exchanges of the node, within a size.

    Beyond it, the exchange that was idle longest forgets its own.
    """

    def __init__(self, exchanges: Exchanges, bytes_max: int) -> None:
        self._exchanges = exchanges
        self._bytes_max = bytes_max
        self._histories: dict[ExchangeName, RecentHistory[Publication]] = {}
        self.size_bytes = 0

    def put(self, name: ExchangeName, publication: Publication) -> None:
        """Remember messages of one exchange, unless their headers say not to."""
        exchange = self._exchanges.find(name)
        if exchange is None or not is_remembered(publication.routed.headers):
            return
        history = self._histories.pop(name, None)
        if history is None:
            length = history_length(exchange.arguments)
            history = RecentHistory(length, bytes_max=self._bytes_max)
        self._histories[name] = history  # behind those that were idle longer
        before = history.size_bytes
        for value in publication.values:
            one = Publication(publication.routed, [value], publication.headers, publication.key)
            history.put(one, one.size_bytes)
        self.size_bytes += history.size_bytes - before
        while self.size_bytes > self._bytes_max:
            self.forget(next(iter(self._histories)))

    def of(self, name: ExchangeName) -> list[Publication]:
        """Return what an exchange remembers, oldest first."""
        history = self._histories.get(name)
        return [] if history is None else history.messages()

    def forget(self, name: ExchangeName) -> None:
        """Forget what an exchange remembers."""
        history = self._histories.pop(name, None)
        if history is not None:
            self.size_bytes -= history.size_bytes
