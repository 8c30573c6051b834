"""Recent-history exchange: a new binding gets the last messages of the exchange.

The argument ``x-recent-history-length`` is their number, 20 without it. A message with the header
``x-recent-history-no-store`` = true is routed but not remembered. The messages are in memory and
end with the process, as in RabbitMQ.
"""

from collections import deque
from typing import Final, Generic, TypeVar

from features.routing.model import InvalidExchange, Table

LENGTH: Final = "x-recent-history-length"
NO_STORE: Final = "x-recent-history-no-store"
LENGTH_DEFAULT: Final = 20
LENGTH_MAX: Final = 1_000

Remembered = TypeVar("Remembered")


class RecentHistory(Generic[Remembered]):
    """The last messages of one exchange, within a number and a size in bytes."""

    def __init__(self, length: int, *, bytes_max: int) -> None:
        self._messages: deque[tuple[Remembered, int]] = deque()
        self._length = length
        self._bytes_max = bytes_max
        self.size_bytes = 0

    def put(self, message: Remembered, size_bytes: int) -> None:
        """Remember a message; the oldest are forgotten beyond the number or the size."""
        self._messages.append((message, size_bytes))
        self.size_bytes += size_bytes
        while self._messages and (
            len(self._messages) > self._length or self.size_bytes > self._bytes_max
        ):
            self.size_bytes -= self._messages.popleft()[1]

    def messages(self) -> list[Remembered]:
        """Return the remembered messages, oldest first."""
        return [message for message, _ in self._messages]


def history_length(arguments: Table) -> int:
    """Return the number of messages to remember. Error: ``InvalidExchange``."""
    length = arguments.get(LENGTH, LENGTH_DEFAULT)
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        msg = f"Invalid argument {length!r}, {LENGTH!r} must be a positive integer"
        raise InvalidExchange(msg)
    if length > LENGTH_MAX:
        raise InvalidExchange(f"{LENGTH} is {length}, at most {LENGTH_MAX} are remembered")
    return length


def is_remembered(headers: Table) -> bool:
    """Say whether a message with these headers is to be remembered."""
    return headers.get(NO_STORE) is not True
