"""Quota of the partitions that a request creates or deletes (KIP-599)."""

from collections.abc import Iterator
from contextlib import contextmanager

from adapters.kafka.errors import ErrorCode, Refused
from adapters.kafka.session import Session


class MutationQuota:
    """Quota of one request. From the version on that knows the error, it is strict.

    Strict: what comes when the quota is used up is refused. Else the request is served whole, and
    its client is throttled.
    """

    __slots__ = ("_is_strict", "_meter", "_request")

    def __init__(self, session: Session, *, is_strict: bool) -> None:
        quotas = session.node.quotas
        self._meter = None
        if quotas.is_active:
            self._meter = quotas.of(session.principal.name, session.client_id).mutations
        self._request = session.meter
        self._is_strict = is_strict

    @contextmanager
    def taking(self, partition_count: int, *, dry: bool = False) -> Iterator[None]:
        """Charge partitions for the change inside the context; a failed one is not charged.

        Error: ``Refused`` with THROTTLING_QUOTA_EXCEEDED.
        """
        meter = self._meter
        if meter is None or dry:
            yield
            return
        if self._is_strict and (wait_ms := meter.check()):
            self._throttle(wait_ms)
            msg = "The throttling quota has been exceeded."
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, msg)
        wait_ms = meter.charge(partition_count)
        try:
            yield
        except BaseException:
            meter.refund(partition_count)
            raise
        if not self._is_strict:
            self._throttle(wait_ms)

    def _throttle(self, wait_ms: int) -> None:
        if self._request is not None:
            self._request.throttle(wait_ms)
