"""Waiting for a partition to grow: the long poll's waiter, and the tail that pushes."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from gateway.errors import GatewayError
from gateway.model import Octets, parse_batch_header
from gateway.partition import Partition
from gateway.reader import Reader

TAIL_READ_BYTES_MAX: Final = 1 << 20


class Waiter:
    """Waits until ``bytes_min`` more octets are readable in any of some partitions.

    ``on_ready`` runs once, in the loop's next turn, so that all appends of a sync group are
    seen together; also when one of the topics is deleted. One waiter serves a whole fetch;
    ``cancel`` may be called at any time, and again.
    """

    __slots__ = ("_bytes_missing", "_loop", "_on_ready", "_partitions")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        partitions: Sequence[Partition],
        *,
        bytes_min: int,
        on_ready: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._partitions = partitions
        self._bytes_missing = bytes_min
        self._on_ready: Callable[[], None] | None = on_ready
        for partition in partitions:
            partition.waiters.add(self)

    def on_appended(self, size_bytes: int) -> None:
        """See ``gateway.partition.Appended``."""
        self._bytes_missing -= size_bytes
        if self._bytes_missing <= 0:
            self.on_gone()

    def on_gone(self) -> None:
        """See ``gateway.partition.Appended``."""
        self._leave()
        self._loop.call_soon(self._fire)

    def cancel(self) -> None:
        """Stop waiting; ``on_ready`` will not run any more."""
        self._on_ready = None
        self._leave()

    def _fire(self) -> None:
        on_ready, self._on_ready = self._on_ready, None
        if on_ready is not None:
            on_ready()

    def _leave(self) -> None:
        for partition in self._partitions:
            partition.waiters.discard(self)
        self._partitions = ()


class Receiver(Protocol):
    """Who a tail pushes to."""

    def on_batches(self, partition: Partition, batches: Sequence[Octets]) -> bool:
        """Take a run of batches, in order; False pauses the tail until ``Tail.resume``."""
        ...

    def on_tail_error(self, partition: Partition, error: GatewayError) -> None:
        """The tail has ended: its position was deleted, or the storage cannot be read."""
        ...


class Tail:
    """Pushes a partition's batches to a receiver from an offset on, each batch once.

    It moves between the log and the live end by itself. The first batch may begin before the
    offset asked for. A paused tail holds no data: it reads on from its position.
    """

    __slots__ = (
        "_disk_read",
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
        self._disk_read: asyncio.Task[Sequence[Octets]] | None = None
        self.partition = partition
        self.offset = offset
        loop.call_soon(self._pump)

    def on_appended(self, size_bytes: int) -> None:  # noqa: ARG002 - the port's signature
        """See ``gateway.partition.Appended``."""
        self.on_gone()

    def on_gone(self) -> None:
        """See ``gateway.partition.Appended``: the next read says what there is."""
        self.partition.waiters.discard(self)
        self._loop.call_soon(self._pump)

    def resume(self) -> None:
        """The receiver has room again."""
        if self._paused:
            self._paused = False
            self._loop.call_soon(self._pump)

    def close(self) -> None:
        """Push nothing more."""
        self._receiver = None
        self.partition.waiters.discard(self)
        if self._disk_read is not None:
            self._disk_read.cancel()

    def _pump(self) -> None:
        if self._receiver is None or self._paused or self._disk_read is not None:
            return
        try:
            batches = self._reader.read(
                self.partition, self.offset, bytes_max=TAIL_READ_BYTES_MAX
            )
        except GatewayError as error:
            self._receiver.on_tail_error(self.partition, error)
            self.close()
            return
        if batches is None:
            self._disk_read = self._loop.create_task(
                self._reader.read_disk(
                    self.partition, self.offset, bytes_max=TAIL_READ_BYTES_MAX
                )
            )
            self._disk_read.add_done_callback(self._on_disk_read)
        elif batches:
            self._push(batches)
        else:
            self.partition.waiters.add(self)

    def _on_disk_read(self, task: asyncio.Task[Sequence[Octets]]) -> None:
        self._disk_read = None
        if self._receiver is None or task.cancelled():
            return
        error = task.exception()
        if isinstance(error, GatewayError):
            self._receiver.on_tail_error(self.partition, error)
            self.close()
        elif error is not None:
            raise error
        else:
            self._push(task.result())

    def _push(self, batches: Sequence[Octets]) -> None:
        assert self._receiver is not None
        if batches:
            self.offset = parse_batch_header(batches[-1]).last_offset + 1
            if not self._receiver.on_batches(self.partition, batches):
                self._paused = True
                return
        self._loop.call_soon(self._pump)
