"""Port of the queue of appends that are not durable yet, for those who append or pace by it."""

from collections.abc import Callable
from typing import Protocol


class AppendQueue(Protocol):
    """Appends between ``Broker.append`` and their ``on_done``; ``gateway.writer`` implements it."""

    batches_appended: int
    """Batches appended since the start."""

    @property
    def is_saturated(self) -> bool:
        """Whether ``wal_queued_bytes_max`` is reached: appenders wait until the queue is low."""
        ...

    def hold(self, release: Callable[[], None]) -> None:
        """Call ``release`` once, when the queue has fallen to ``wal_queued_bytes_low``."""
        ...

    def unhold(self, release: Callable[[], None]) -> None:
        """Do not call ``release`` any more: the held appender has gone."""
        ...
