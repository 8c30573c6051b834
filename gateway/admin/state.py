"""State of the node for the admin endpoint; filled in by the composition root."""

from collections.abc import Callable, Mapping

from gateway.errors import ShuttingDown
from gateway.kernel import Kernel, ProtocolAdapter
from gateway.metrics import Metrics


class AdminState:
    """State of the node. ``kernel`` is set when REST calls can be served."""

    def __init__(
        self,
        *,
        metrics: Metrics,
        kernel: Kernel | None = None,
        adapters: Mapping[str, ProtocolAdapter] | None = None,
    ) -> None:
        self.metrics = metrics
        self.kernel = kernel
        self.adapters = {} if adapters is None else adapters
        self.on_ready_changed: Callable[[], None] | None = None
        self._is_ready = False
        self._ready_since_ms = 0

    @property
    def is_ready(self) -> bool:
        """Whether every listener listens and the node is not stopping."""
        return self._is_ready

    @is_ready.setter
    def is_ready(self, is_ready: bool) -> None:
        if is_ready and not self._is_ready and self.kernel is not None:
            self._ready_since_ms = self.kernel.clock.monotonic_ms()
        self._is_ready = is_ready
        if self.on_ready_changed is not None:
            self.on_ready_changed()

    def uptime_ms(self) -> int:
        """Return how long the node has been ready. Errors: as ``running``."""
        return self.running().clock.monotonic_ms() - self._ready_since_ms

    def running(self) -> Kernel:
        """Return the kernel. Errors: ``ShuttingDown`` before it starts and after it stops."""
        if self.kernel is None:
            msg = "the node is starting or stopping"
            raise ShuttingDown(msg)
        return self.kernel
