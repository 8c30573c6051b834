"""What the admin endpoint knows of the node; the composition root fills it in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gateway.errors import ShuttingDown
from gateway.kernel import Endpoint, Kernel
from gateway.metrics import Metrics


class RunningAdapter(Protocol):
    """What the admin endpoint asks an adapter."""

    def endpoints(self) -> list[Endpoint]:
        """Return where it listens."""
        ...

    def connections(self) -> list[dict[str, Any]]:
        """Return one table per open connection."""
        ...


@dataclass
class AdminState:
    """The node, as far as it has started. ``kernel`` is set when REST calls can be served."""

    metrics: Metrics
    kernel: Kernel | None = None
    adapters: Mapping[str, RunningAdapter] = field(default_factory=dict)
    is_ready: bool = False

    def running(self) -> Kernel:
        """Return the kernel. Errors: ``ShuttingDown`` while it is not there (yet)."""
        if self.kernel is None:
            msg = "the node is starting or stopping"
            raise ShuttingDown(msg)
        return self.kernel
