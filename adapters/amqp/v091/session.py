"""States of a connection, and the methods that a client may send in each (section 2.2.4)."""

from enum import Enum
from typing import Final

from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.methods import connection
from adapters.amqp.v091.methods.model import Method


class State(Enum):
    """State of a connection."""

    HEADER = "header"
    START = "start"
    SECURE = "secure"
    TUNE = "tune"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"  # the server has sent connection.close
    CLOSED = "closed"


TRANSITIONS: Final[dict[State, frozenset[type[Method]]]] = {
    State.HEADER: frozenset(),
    State.START: frozenset({connection.ConnectionStartOk}),
    State.SECURE: frozenset({connection.ConnectionSecureOk}),
    State.TUNE: frozenset({connection.ConnectionTuneOk}),
    State.OPENING: frozenset({connection.ConnectionOpen}),
    State.OPEN: frozenset({connection.ConnectionUpdateSecret}),
    State.CLOSING: frozenset({connection.ConnectionCloseOk}),
    State.CLOSED: frozenset(),
}
"""Methods of the class connection by state; ``connection.close`` is taken in all but the first."""

CLOSES: Final = frozenset({(10, 50), (10, 51)})
"""Methods that are taken while a connection closes."""


def check_method(state: State, method: Method) -> None:
    """Check that a method may come in a state. Error: ``AmqpFault`` 503."""
    if type(method) in TRANSITIONS[state]:
        return
    if isinstance(method, connection.ConnectionClose) and state is not State.HEADER:
        return
    raise AmqpFault(
        ReplyCode.COMMAND_INVALID, f"{method.NAME} is not taken in state {state.value}"
    )


class Tuning:
    """Limits of a connection, agreed in Tune and Tune-Ok. 0 stands for no limit."""

    __slots__ = ("channels_max", "frame_bytes_max", "heartbeat_s")

    def __init__(self, channels_max: int, frame_bytes_max: int, heartbeat_s: int) -> None:
        self.channels_max = channels_max
        self.frame_bytes_max = frame_bytes_max
        self.heartbeat_s = heartbeat_s

    def agree(self, reply: connection.ConnectionTuneOk, *, frame_bytes_min: int) -> None:
        """Take the client's values. Error: ``AmqpFault`` 530 for one out of bounds.

        Neither value may exceed the server's, and 0 does. The heartbeat is the client's alone.
        """
        _check("channel_max", reply.channel_max, 1, self.channels_max)
        _check("frame_max", reply.frame_max, frame_bytes_min, self.frame_bytes_max)
        self.channels_max = reply.channel_max
        self.frame_bytes_max = reply.frame_max
        self.heartbeat_s = reply.heartbeat


def _check(name: str, value: int, low: int, high: int) -> None:
    if 0 < value < low:
        text = f"negotiated {name} = {value} is lower than the minimum allowed value ({low})"
    elif not value or value > high:
        text = f"negotiated {name} = {value} is higher than the maximum allowed value ({high})"
    else:
        return
    raise AmqpFault(ReplyCode.NOT_ALLOWED, text)
