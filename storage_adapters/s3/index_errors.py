"""Errors of the index."""

from gateway.errors import StorageUnavailable


class IndexUnavailable(StorageUnavailable):
    """The database is away, or locked by another node: the change is not done."""


class OutcomeUnknown(IndexUnavailable):
    """The connection broke at COMMIT: the change is done, or never will be. Call ``committed``."""


class Fenced(StorageUnavailable):
    """Another node has taken over the data: this one must stop."""


class PendingLost(StorageUnavailable):
    """The row of an object that was to become live is missing or dead."""

    def __init__(self, number: int) -> None:
        super().__init__(f"object {number} was not committed in time: its row was swept")
        self.number = number
