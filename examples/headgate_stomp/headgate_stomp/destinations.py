"""Destinations: the names that frames send to and subscribe to. Pure.

    /queue/NAME             a queue, made by the first that sends or subscribes
    /amq/queue/NAME         a queue that is there
    /topic/NAME             a topic, read from now on, or from a stored position
    /exchange/NAME[/KEY]    an exchange; KEY is a routing key, or the key of a binding
    /temp-queue/NAME        in `reply-to`: a queue of the session, for answers
    /reply-queue/NAME       such a queue, as those who answer see it

Words are percent-encoded where they have a slash.
"""

from enum import Enum
from typing import Final, NamedTuple
from urllib.parse import unquote

from gateway.exchanges.model import ExchangeName
from gateway.model import DEFAULT_NAMESPACE, TopicName, check_topic_name
from headgate_stomp.errors import StompFault

DEFAULT_EXCHANGE: Final = ExchangeName(DEFAULT_NAMESPACE, "")
_NAME_BYTES_MAX: Final = 255


class Kind(Enum):
    """Kind of a destination."""

    QUEUE = "/queue/"
    EXISTING_QUEUE = "/amq/queue/"
    TOPIC = "/topic/"
    EXCHANGE = "/exchange/"
    TEMPORARY_QUEUE = "/temp-queue/"
    REPLY_QUEUE = "/reply-queue/"


class Destination(NamedTuple):
    """Destination. ``key`` is a routing key, of exchanges only."""

    kind: Kind
    name: str
    key: str = ""

    @property
    def topic_name(self) -> TopicName:
        """The topic of a queue or of a topic."""
        return TopicName(DEFAULT_NAMESPACE, self.name)

    @property
    def exchange(self) -> ExchangeName:
        """The exchange to which messages are published."""
        if self.kind is Kind.EXCHANGE:
            return ExchangeName(DEFAULT_NAMESPACE, self.name)
        return DEFAULT_EXCHANGE

    @property
    def routing_key(self) -> str:
        """The routing key; the default exchange routes to the topic of that name."""
        return self.key if self.kind is Kind.EXCHANGE else self.name


def parse_destination(text: str | None) -> Destination:
    """Return a destination. Errors: ``StompFault``, ``InvalidTopicName``.

    >>> parse_destination("/exchange/amq.topic/prices.%2F.eur")
    Destination(kind=<Kind.EXCHANGE: '/exchange/'>, name='amq.topic', key='prices./.eur')
    """
    if text is None:
        raise StompFault("Missing destination", "the header destination is missing")
    for kind in Kind:
        if text.startswith(kind.value):
            return _parse(kind, text.removeprefix(kind.value), text)
    raise _unknown(text)


def _parse(kind: Kind, rest: str, text: str) -> Destination:
    name, _, key = rest.partition("/")
    name, key = unquote(name), unquote(key)
    if kind is Kind.EXCHANGE:
        if not name or max(len(name.encode()), len(key.encode())) > _NAME_BYTES_MAX:
            raise _unknown(text)
        return Destination(kind, name, key)
    if key:
        raise _unknown(text)
    return Destination(kind, check_topic_name(name))


def _unknown(text: str) -> StompFault:
    kinds = ", ".join(f"{kind.value}..." for kind in Kind)
    return StompFault(
        "Unknown destination", f"{text[:_NAME_BYTES_MAX]!r} is not a valid destination: {kinds}"
    )
