"""What the index says no with."""

from gateway.errors import StorageUnavailable


class IndexUnavailable(StorageUnavailable):
    """The database is away, or locked by another: the change is certainly not done."""


class OutcomeUnknown(IndexUnavailable):
    """The connection went at COMMIT: the change is done, or will never be. Ask ``committed``."""


class Fenced(StorageUnavailable):
    """Another node has taken the data over: this one must stop."""


class PendingLost(StorageUnavailable):
    """The row of an object that was to be live is not there any more, or is dead."""

    def __init__(self, number: int) -> None:
        super().__init__(f"object {number} was not committed in time: its row was swept")
        self.number = number
