"""Retries with growing, jittered pauses, within a bound and until the node stops."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from gateway.clock import Clock
from gateway.errors import StorageUnavailable
from storage_adapters.s3.bucket_errors import (
    EXPECTED,
    BucketRefused,
    BucketUnavailable,
    KeyTaken,
    ObjectMissing,
    RequestFault,
    Verdict,
    judge,
)

PAUSE_MS_MIN: Final = 50
PAUSE_MS_MAX: Final = 5_000
_GROWTH_MAX: Final = 16  # doublings; the pause reaches its bound earlier

_T = TypeVar("_T")


class Statistics(NamedTuple):
    """Counts of requests to the bucket since the start; each try counts.

    ``requests``: by kind (put, part, create, complete, abort, get, head, list, delete).
    ``retries``: by reason (timeout, connection, broken, slow_down, server, conflict, credentials,
    wrong_checksum, checksum_unknown).
    """

    requests: dict[str, int]
    retries: dict[str, int]
    sent_bytes: int
    received_bytes: int


class Retrier:
    """Retrier of calls until success or the end of the time allowed. Thread-safe.

    ``place`` begins every error's text: endpoint and bucket. ``renew`` is called before the next
    try when the credentials were out of date.
    """

    def __init__(
        self, clock: Clock, *, ms_max: int, place: str, renew: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._ms_max = ms_max
        self._place = place
        self._renew = renew
        self._stopped = threading.Event()
        self._random = random.SystemRandom()
        self._lock = threading.Lock()
        self._requests: Counter[str] = Counter()
        self._retries: Counter[str] = Counter()
        self._sent_bytes = 0
        self._received_bytes = 0

    def stop(self) -> None:
        """End all pauses; from now on every call has one try."""
        self._stopped.set()

    def statistics(self) -> Statistics:
        """Return the current counts."""
        with self._lock:
            return Statistics(
                dict(self._requests),
                dict(self._retries),
                self._sent_bytes,
                self._received_bytes,
            )

    def count(self, kind: str, *, sent: int = 0, received: int = 0) -> None:
        """Count a request and the size of its body."""
        with self._lock:
            self._requests[kind] += 1
            self._sent_bytes += sent
            self._received_bytes += received

    def received(self, size: int) -> None:
        """Count the size of a received body."""
        with self._lock:
            self._received_bytes += size

    def run(self, what: str, call: Callable[[], _T]) -> _T:
        """Run ``call`` with retries. ``what`` names the request and its key.

        ``storage.retry_ms_max`` counts from the first failure, so that a request that hung for
        longer than that is tried again, too.
        Errors: ``ObjectMissing``, ``KeyTaken``, ``BucketRefused``, ``BucketUnavailable``.
        """
        deadline_ms: int | None = None
        tries = 0
        while True:
            tries += 1
            try:
                return call()
            except EXPECTED as error:
                fault = judge(error)
                now_ms = self._clock.monotonic_ms()
                deadline_ms = now_ms + self._ms_max if deadline_ms is None else deadline_ms
                if not self._pause(fault, tries, deadline_ms - now_ms):
                    raise self._as_ours(what, fault, tries) from error

    def _pause(self, fault: RequestFault, tries: int, left_ms: int) -> bool:
        """Wait for the next try. False when a retry cannot help or time is up."""
        if fault.verdict not in {Verdict.AGAIN, Verdict.RENEW}:
            return False
        highest_ms = min(PAUSE_MS_MIN << min(tries, _GROWTH_MAX), PAUSE_MS_MAX)
        pause_ms = self._random.randint(PAUSE_MS_MIN, highest_ms)
        if pause_ms > left_ms or self._stopped.wait(pause_ms / 1_000):
            return False
        if fault.verdict is Verdict.RENEW:
            self._renew()
        with self._lock:
            self._retries[fault.reason] += 1
        return True

    def _as_ours(self, what: str, fault: RequestFault, tries: int) -> StorageUnavailable:
        text = f"{self._place}, {what}: {fault.text}"
        match fault.verdict:
            case Verdict.MISSING:
                return ObjectMissing(text)
            case Verdict.TAKEN:
                return KeyTaken(text)
            case Verdict.AGAIN:
                return BucketUnavailable(f"{text} ({tries} tries)" if tries > 1 else text)
            case _:
                return BucketRefused(text)
