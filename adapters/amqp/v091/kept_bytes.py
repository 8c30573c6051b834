"""Bytes that a connection keeps of its client: counted, and reads held where they are too many."""

from collections.abc import Callable
from typing import Protocol

from adapters.amqp.config import AmqpConfig
from adapters.amqp.v091.channel import Channel
from adapters.amqp.v091.channels import Channels
from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.framing import FrameReader
from gateway.budget import Budget, Intake


class KeepingConnection(Protocol):
    """The connection, as its kept bytes are counted."""

    channels: Channels
    control: Channel
    config: AmqpConfig
    is_closing: bool
    bytes_received: int

    def hold_reads(self, reason: str) -> None:
        """Stop reading."""
        ...

    def release_reads(self, reason: str) -> None:
        """Read again."""
        ...

    def guard(self, work: Callable[[], None]) -> None:
        """Run ``work``; an error closes this connection only."""
        ...

    def end(self, fault: AmqpFault) -> None:
        """Close the connection."""
        ...


class KeptBytes:
    """Incomplete frames and contents of one connection, and frames that wait."""

    def __init__(
        self, connection: KeepingConnection, reader: FrameReader, budget: Budget
    ) -> None:
        self._connection = connection
        self._reader = reader
        self._intake = Intake(budget, lambda: connection.guard(self.count))
        config = connection.config
        self._content_bytes_max = max(config.message_bytes_max, budget.bytes_max // 2)
        self.size_bytes = 0

    def count(self) -> None:
        """Count what is kept; hold reads where it is too much.

        All channels together may keep half of the budget in incomplete contents; more is fault
        506: one client could fill the budget with contents that never end.
        """
        connection = self._connection
        if connection.is_closing:
            return
        control = connection.control
        content_bytes, pending_bytes, pending_count = connection.channels.count_kept()
        if content_bytes > self._content_bytes_max:
            connection.end(
                AmqpFault(
                    ReplyCode.RESOURCE_ERROR,
                    f"{content_bytes} bytes of incomplete contents, at most "
                    f"{self._content_bytes_max} are kept",
                )
            )
            return
        pending_bytes += control.pending_bytes
        self.size_bytes = self._reader.kept_bytes + content_bytes + pending_bytes
        is_midway = self._reader.kept_bytes > 0 or content_bytes > 0
        if self._intake.count(self.size_bytes, is_midway=is_midway):
            connection.release_reads("room")
        else:
            connection.hold_reads("room")
        pending_count += len(control.pending)
        if pending_count > connection.config.pipelined_max:
            connection.hold_reads("pipelined")
        elif pending_count <= connection.config.pipelined_max // 2:
            connection.release_reads("pipelined")

    def is_stalled(self, now_s: float, *, is_held: bool) -> bool:
        """Say whether a content is stalled while others wait for its bytes."""
        return self._intake.is_stalled(self._connection.bytes_received, now_s, is_held=is_held)

    def close(self) -> None:
        """Give all bytes back."""
        self._intake.close()
