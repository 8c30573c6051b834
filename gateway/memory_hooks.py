"""Callbacks around partitions in memory: their bounds are small, and cannot wait for upkeep."""

from collections.abc import Callable

from gateway.model import Headers
from gateway.partition import Partition
from gateway.records.record_run import RecordRun


class MemoryHooks:
    """See the module. By default each does nothing, for nodes without memory beside the log."""

    def __init__(self) -> None:
        self.renew_holds: Callable[[Partition], None] = _leave
        """Moves the holds of a partition to where its queues are now."""
        self.trim: Callable[[Partition], None] = _leave
        """Removes from a partition what its queues have settled."""
        self.check_room: Callable[[int], None] = _take
        """Raises ``Overloaded`` when all memory has no room for so many bytes."""
        self.drop_oldest: Callable[[Partition, int], None] = _leave_all
        """Drops the ready messages of transient queues below an offset."""
        self.overflow: Callable[[Partition, RecordRun, Headers], bool] = _refuse
        """Says whether a full partition refuses records that go elsewhere too, or drops them."""


def _leave(_partition: Partition) -> None:
    """Leave a partition as it is."""


def _take(_size_bytes: int) -> None:
    """Take any number of bytes."""


def _refuse(_partition: Partition, _run: RecordRun, _headers: Headers) -> bool:
    """Refuse the records: there is no queue to drop them."""
    return True


def _leave_all(_partition: Partition, _offset: int) -> None:
    """Leave all messages."""
