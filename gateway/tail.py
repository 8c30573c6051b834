"""Tail of a partition: pushes its batches to a receiver, from the log and then as they come."""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from gateway.errors import GatewayError, as_value
from gateway.model import Buffer, parse_batch_header
from gateway.partition import Partition, Write
from gateway.reader import Reader

TAIL_READ_BYTES_MAX: Final = 1 << 20
TAIL_LIVE_BYTES_MAX: Final = 64 << 20  # no more than `wal_queued_bytes_max` by default


class Receiver(Protocol):
    """Receiver of a tail's batches."""

    def on_batches(self, partition: Partition, batches: Sequence[Buffer]) -> bool:
        """Take a run of batches from the log, in order; False pauses until ``Tail.resume``."""
        ...

    def on_writes(self, partition: Partition, writes: Sequence[Write]) -> bool:
        """Take writes that have just become readable, in order; False as for ``on_batches``.

        The first begins where what was taken before has ended. They belong to the broker: look
        at them now, and change nothing.
        """
        ...

    def on_tail_error(self, partition: Partition, error: GatewayError) -> None:
        """Handle the end of the tail: its position was deleted, or the storage cannot be read."""
        ...


class Tail:
    """Pushes a partition's batches to a receiver from an offset on, each batch once, in order.

    It moves between the log and the live end by itself, and waits where a transaction is open. From
    the log come batches, of which the first may begin before the offset asked for. At the live end
    nothing is read: a write is held until the loop's next turn and pushed as it is, with all others
    of the turn, up to ``TAIL_LIVE_BYTES_MAX`` bytes; what is above comes from the log. A paused
    tail holds no data: it reads on from its position.
    """

    __slots__ = (
        "_disk_read",
        "_held",
        "_held_bytes",
        "_is_live",
        "_loop",
        "_paused",
        "_reader",
        "_receiver",
        "offset",
        "partition",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        reader: Reader,
        partition: Partition,
        offset: int,
        receiver: Receiver,
    ) -> None:
        self._loop = loop
        self._reader = reader
        self._receiver: Receiver | None = receiver
        self._paused = False
        self._is_live = False  # it has all that is readable, and is told what is new
        self._held: list[Write] = []  # not empty: a push is scheduled
        self._held_bytes = 0
        self._disk_read: asyncio.Task[Sequence[Buffer]] | None = None
        self.partition = partition
        self.offset = offset
        loop.call_soon(self._pump)

    def on_appended(self, write: Write) -> None:
        """See ``gateway.partition.Appended``."""
        if not self._is_live:
            return
        held = self._held
        next_offset = held[-1].end_offset if held else self.offset
        size_bytes = self._held_bytes + write.size_bytes
        if write.base_offset != next_offset or size_bytes > TAIL_LIVE_BYTES_MAX:
            self.on_gone()  # a tail that was asked to begin further on, or one that is full
            return
        if not held:
            self._loop.call_soon(self._push_held)
        held.append(write)
        self._held_bytes = size_bytes

    def on_stable(self) -> None:
        """See ``gateway.partition.Appended``: what became readable comes from the log."""
        self.on_gone()

    @property
    def reads_uncommitted(self) -> bool:
        """See ``gateway.partition.Appended``."""
        return False

    @property
    def takes_pending(self) -> bool:
        """See ``gateway.partition.Appended``: the next owner's tails begin behind them."""
        return True

    def on_truncated(self) -> None:
        """See ``gateway.partition.Appended``: a tail at the log's end reads on."""

    def on_gone(self) -> None:
        """See ``gateway.partition.Appended``: read again to find what there is."""
        self._leave()
        if not self._held:  # else what is held goes first, and the push reads on
            self._loop.call_soon(self._pump)

    def push_held(self) -> None:
        """Push held writes now instead of in the loop's next turn."""
        if self._held:
            self._push_held()

    def resume(self) -> None:
        """Go on after the receiver paused the tail."""
        if self._paused:
            self._paused = False
            self._loop.call_soon(self._pump)

    def close(self) -> None:
        """Push nothing more."""
        self._receiver = None
        self._leave()
        self._held = []
        if self._disk_read is not None:
            self._disk_read.cancel()

    def _leave(self) -> None:
        self._is_live = False
        self.partition.waiters.discard(self)

    def _pump(self) -> None:
        """Push batches from the log; at its end, switch to live writes."""
        if self._receiver is None or self._paused or self._disk_read is not None:
            return
        assert not self._is_live, "what comes live would be read too"
        assert not self._held, "what is held would be read again"
        try:
            batches = self._reader.read(
                self.partition, self.offset, bytes_max=TAIL_READ_BYTES_MAX
            )
        except GatewayError as error:
            self._fail(self._receiver, as_value(error))
            return
        if batches is None:
            self._disk_read = self._loop.create_task(
                self._reader.read_disk(
                    self.partition, self.offset, bytes_max=TAIL_READ_BYTES_MAX
                )
            )
            self._disk_read.add_done_callback(self._on_disk_read)
        elif batches:
            self._push(self._receiver, batches)
        else:
            self._is_live = True
            self.partition.waiters.add(self)

    def _on_disk_read(self, task: asyncio.Task[Sequence[Buffer]]) -> None:
        self._disk_read = None
        if self._receiver is None or task.cancelled():
            return
        error = task.exception()
        if isinstance(error, GatewayError):
            self._fail(self._receiver, error)
        elif error is not None:
            raise error
        else:
            self._push(self._receiver, task.result())

    def _fail(self, receiver: Receiver, error: GatewayError) -> None:
        receiver.on_tail_error(self.partition, error)
        self.close()

    def _push(self, receiver: Receiver, batches: Sequence[Buffer]) -> None:
        if batches:
            self.offset = parse_batch_header(batches[-1]).last_offset + 1
            if not receiver.on_batches(self.partition, batches):
                self._paused = True
                return
        self._loop.call_soon(self._pump)

    def _push_held(self) -> None:
        writes, self._held = self._held, []
        size_bytes, self._held_bytes = self._held_bytes, 0
        if self._receiver is None or not writes:
            return
        offset, self.offset = self.offset, writes[-1].end_offset
        traffic = self.partition.topic.traffic
        traffic.records_out += self.offset - offset
        traffic.bytes_out += size_bytes
        if not self._receiver.on_writes(self.partition, writes):
            self._paused = True
            self._leave()
        elif not self._is_live:
            self._loop.call_soon(self._pump)
