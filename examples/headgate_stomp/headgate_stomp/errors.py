"""Errors of the gateway in STOMP's words: the header ``message`` and the body of ERROR."""

from typing import Final

from gateway.errors import (
    GatewayError,
    InvalidRequest,
    InvalidTopicName,
    MessageTooLarge,
    NotLeader,
    Overloaded,
    PeerError,
    PolicyViolation,
    ShuttingDown,
    StorageUnavailable,
    TopicNotFound,
    Unauthenticated,
    Unauthorized,
    public_text,
)
from gateway.exchanges.manager import ExchangeNotFound


class StompFault(PeerError):
    """Fault of a client, or the end of what it asked for: it gets ERROR, and is disconnected.

    ``summary`` is the header ``message``.
    """

    def __init__(self, summary: str, detail: str) -> None:
        super().__init__(detail)
        self.summary = summary


# The nearest base class counts. Words that RabbitMQ has are RabbitMQ's.
_SUMMARIES: Final[dict[type[GatewayError], str]] = {
    ExchangeNotFound: "not_found",
    GatewayError: "Processing error",
    PeerError: "Invalid frame",
    InvalidRequest: "Invalid request",
    InvalidTopicName: "Invalid destination",
    MessageTooLarge: "Message too large",
    NotLeader: "Not the leader",
    Overloaded: "Resource limit",
    PolicyViolation: "precondition_failed",
    ShuttingDown: "Server shutting down",
    StorageUnavailable: "Storage unavailable",
    TopicNotFound: "not_found",
    Unauthenticated: "Bad CONNECT",
    Unauthorized: "access_refused",
}


def to_fault(error: GatewayError) -> StompFault:
    """Return an error as a client gets it."""
    if isinstance(error, StompFault):
        return error
    kind = next(kind for kind in type(error).__mro__ if kind in _SUMMARIES)
    return StompFault(_SUMMARIES[kind], public_text(error))
