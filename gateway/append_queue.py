"""Port of the queue of appends that are not durable yet, for those who append or pace by it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gateway.tracing.tracer import Tracer


class AppendQueue(Protocol):
    """Appends between ``Broker.append`` and their ``on_done``; ``gateway.writer`` implements it."""

    batches_appended: int
    """Batches appended since the start."""
    tracer: "Tracer | None"
    """Makes spans of sampled messages; None without ``[otel]``, and then it costs nothing."""

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
