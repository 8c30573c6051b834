"""Incremental fetch session (KIP-227): the partitions that a client fetches, kept by the node.

A request names only partitions to add, to change or to forget; the response has only those with
batches, an error, or a high watermark or log start offset that the client has not seen. So a
request costs by the partitions in ``ready``: an idle one registers with ``Partition.waiters``
once, leaves it with the next append, and returns when a request has found nothing new in it.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

from adapters.kafka.codec import TopicRef
from adapters.kafka.codecs.fetch_codec import FetchResult
from adapters.kafka.errors import ErrorCode
from adapters.kafka.node.fetch_target import FetchTarget
from adapters.kafka.node.large_requests import SLICE_ELEMENTS
from gateway.auth.ports import Principal
from gateway.partition import Write

if TYPE_CHECKING:
    from gateway.partition import Partition

_UNSENT: Final = -1
_EPOCH_MAX: Final = 2**31 - 1

Owner = tuple[str, Principal]
"""Namespace and principal of a session; only their connections may use it."""


def next_epoch(epoch: int) -> int:
    """Return the epoch of the next request; 0 and -1 are those of full fetches.

    >>> next_epoch(0), next_epoch(2**31 - 1)
    (1, 1)
    """
    return 1 if epoch == _EPOCH_MAX else epoch + 1


class SessionPartition(FetchTarget):
    """A partition of a session, and the offsets that the client has last been sent.

    Partitions are read in the order of ``turn``; one whose batches were sent goes to the end.
    """

    __slots__ = ("ref", "sent_high_watermark", "sent_log_start_offset", "session", "turn")

    def __init__(self, session: "FetchSession", ref: TopicRef, found: FetchTarget) -> None:
        super().__init__(found.request, found.partition, found.error)
        self.session = session
        self.ref = ref
        self.turn = next(session.turns)
        self.sent_high_watermark = _UNSENT
        self.sent_log_start_offset = _UNSENT

    @property
    def is_stale(self) -> bool:
        """Whether the partition has to be looked up again: it had an error, or is deleted."""
        return self.error is not None or self.partition is None or self.partition.is_gone

    @property
    def has_news(self) -> bool:
        """Whether the next response includes the partition."""
        return bool(self.batches) or self.error is not None or self._has_moved

    @property
    def _has_moved(self) -> bool:
        partition = self.partition
        return partition is not None and (
            partition.high_watermark != self.sent_high_watermark
            or partition.log_start_offset != self.sent_log_start_offset
        )

    @property
    def is_idle(self) -> bool:
        """Whether nothing changes in the partition's result before its next event."""
        partition = self.partition
        return (
            partition is not None
            and not self.is_stale
            and self.request.offset == partition.high_watermark
            and not self._has_moved
        )

    def result(self) -> FetchResult:
        """Return the partition's result, and note what the client has been sent.

        After an error the partition is sent again, as soon as the error has gone.
        """
        result = super().result()
        is_error = self.error is not None
        self.sent_high_watermark = _UNSENT if is_error else result.high_watermark
        self.sent_log_start_offset = result.log_start_offset
        return result

    def on_appended(self, write: Write) -> None:
        """See ``gateway.partition.Appended``."""
        session = self.session
        session.ready.add(self)
        if session.waiter is None:
            write.partition.waiters.discard(self)
        else:
            session.waiter.count(write.size_bytes)

    def on_truncated(self) -> None:
        """See ``gateway.partition.Appended``."""
        self.session.ready.add(self)

    def on_stable(self) -> None:
        """See ``gateway.partition.Appended``: the request reads again."""
        self.on_gone()

    @property
    def reads_uncommitted(self) -> bool:
        """See ``gateway.partition.Appended``: as the session's last request."""
        return self.session.reads_uncommitted

    @property
    def takes_pending(self) -> bool:
        """See ``gateway.partition.Appended``: the client asks the next owner."""
        return False

    def on_gone(self) -> None:
        """See ``gateway.partition.Appended``."""
        self.session.ready.add(self)
        if self.session.waiter is not None:
            self.session.waiter.fire()


class SessionWaiter:
    """Wait of a request for batches in any partition of its session."""

    __slots__ = ("_bytes_missing", "_on_ready", "_session")

    def __init__(
        self, session: "FetchSession", bytes_min: int, on_ready: Callable[[], None]
    ) -> None:
        self._session = session
        self._bytes_missing = bytes_min
        self._on_ready: Callable[[], None] | None = on_ready

    def count(self, size_bytes: int) -> None:
        """Count appended bytes; when there are enough, wake the request."""
        self._bytes_missing -= size_bytes
        if self._bytes_missing <= 0:
            self.fire()

    def fire(self) -> None:
        """Wake the request in the loop's next turn."""
        self._session.waiter = None
        asyncio.get_running_loop().call_soon(self._wake)

    def cancel(self) -> None:
        """Stop waiting; the request will not be woken any more."""
        self._on_ready = None
        if self._session.waiter is self:
            self._session.waiter = None

    def _wake(self) -> None:
        on_ready, self._on_ready = self._on_ready, None
        if on_ready is not None:
            on_ready()


class SessionRequest(Protocol):
    """Port of a session to its pending request."""

    def refuse(self, code: ErrorCode, *, session_id: int = 0) -> None:
        """Answer the request by an error now."""
        ...


class FetchSession:
    """A session: its partitions, those to be read, and the request that is under way.

    ``id`` is 0 and ``epoch`` 1 until the cache has taken it; ``revision`` is that of the
    authorizer when all partitions were authorized.
    """

    def __init__(self, owner: Owner, revision: int, *, by_id: bool) -> None:
        self.id = 0
        self.epoch = 1
        self.owner = owner
        self.revision = revision
        self.by_id = by_id
        self.reads_uncommitted = False
        self.partitions: dict[tuple[TopicRef, int], SessionPartition] = {}
        self.ready: set[SessionPartition] = set()
        self.turns = count()
        self.waiter: SessionWaiter | None = None
        self.pending: SessionRequest | None = None

    def put(self, ref: TopicRef, found: FetchTarget) -> None:
        """Add a partition, or change its position and limits."""
        key = ref, found.request.number
        kept = self.partitions.get(key)
        if kept is None:
            kept = self.partitions[key] = SessionPartition(self, ref, found)
        else:
            if kept.partition is not found.partition:
                _unregister(kept)
            kept.request = found.request
            kept.partition, kept.error = found.partition, found.error
        self.ready.add(kept)

    def forget(self, ref: TopicRef, number: int) -> None:
        """Remove a partition; an unknown one is ignored."""
        kept = self.partitions.pop((ref, number), None)
        if kept is not None:
            self.ready.discard(kept)
            _unregister(kept)

    def in_order(self) -> list[SessionPartition]:
        """Return the partitions to be read, those first whose batches were sent longest ago."""
        return sorted(self.ready, key=_turn)

    @property
    def is_waitable(self) -> bool:
        """Whether batches may come to any partition."""
        known = len(self.partitions) - len(self.ready)
        return known > 0 or any(one.partition is not None for one in self.ready)

    def wait(self, bytes_min: int, on_ready: Callable[[], None]) -> SessionWaiter:
        """Call ``on_ready`` once ``bytes_min`` more bytes are readable; one at a time."""
        for one in self.ready:
            if one.partition is not None:
                one.partition.waiters.add(one)
        self.waiter = SessionWaiter(self, bytes_min, on_ready)
        return self.waiter

    def settle(self, answered: Sequence[SessionPartition]) -> None:
        """Release the batches of a response; idle partitions wait for their next event."""
        for one in answered:
            if one.batches:
                one.turn = next(self.turns)
                one.batches = ()
            if one.is_idle and one in self.ready:
                self.ready.discard(one)
                partition: Partition | None = one.partition
                assert partition is not None
                partition.waiters.add(one)

    def close(self) -> None:
        """Unregister all partitions, at most ``SLICE_ELEMENTS`` in a turn of the loop."""
        self.ready.clear()
        for _ in range(min(len(self.partitions), SLICE_ELEMENTS)):
            _unregister(self.partitions.popitem()[1])
        if self.partitions:
            asyncio.get_running_loop().call_soon(self.close)


def _turn(one: SessionPartition) -> int:
    return one.turn


def _unregister(one: SessionPartition) -> None:
    if one.partition is not None:
        one.partition.waiters.discard(one)
