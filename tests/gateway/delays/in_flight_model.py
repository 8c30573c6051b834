"""A plain model of waiting messages whose appends, reads and removals are not done yet."""

from gateway.errors import GatewayError, StorageUnavailable
from gateway.storage import OnDone


def both(first: OnDone, second: OnDone) -> OnDone:
    """Return what tells one after the other."""

    def done(error: StorageUnavailable | None) -> None:
        first(error)
        second(error)

    return done


class Ending:
    """A cancellation or a purge; ``is_kept`` is None while it is on its way."""

    def __init__(self, *, is_purge: bool) -> None:
        self.is_purge = is_purge
        self.is_kept: bool | None = None

    def done(self, error: GatewayError | None) -> None:
        self.is_kept = error is None


class Message:
    """One message. ``is_either``: it may have been purged or not.

    ``is_leaving``: it was on its way to its topic when that was purged, and is not counted.
    """

    def __init__(self, value: bytes, topic: int, due_unix_ms: int) -> None:
        self.value = value
        self.topic = topic
        self.due_unix_ms = due_unix_ms
        self.number = 0
        self.is_kept: bool | None = None
        self.is_either = False
        self.is_leaving = False
        self.has_come = False
        self.endings: list[Ending] = []

    def put_done(self, error: GatewayError | None) -> None:
        self.is_kept = error is None

    @property
    def is_out(self) -> bool:
        """Whether it has been taken out for good."""
        return any(one.is_kept for one in self.endings)

    @property
    def counts(self) -> bool:
        is_purged = any(one.is_purge for one in self.endings)
        is_gone = self.has_come or self.is_leaving or self.is_out or is_purged
        return bool(self.is_kept) and not is_gone

    def crashed(self) -> None:
        """Drop all that was not done; a purge may have been done in part."""
        self.is_kept = bool(self.is_kept)
        begun = [one for one in self.endings if one.is_purge and not one.is_kept]
        self.is_either |= self.is_kept and bool(begun)
        self.is_leaving = False
        self.endings = [one for one in self.endings if one.is_kept]
