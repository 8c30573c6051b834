"""Throttle of failed logins: counted, logged, and delayed longer with each failure.

The answer to a wrong password waits; the wait doubles with each failure of the same user from
the same address (``auth.failure_delay_ms``, up to ``failure_delay_ms_max``), and the user's next
attempt from there begins when it is over, one at a time, so that connections side by side guess no
faster. Failures of many users from one address add up as well, and delay answers to failures
alone: who shares the address and has the right password is not held up. Checking a password costs
CPU, of which an address with many failures gets a part only (``auth.checks_per_ip_max``).
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from gateway.auth.audit import Audit
from gateway.auth.scram import saslprep
from gateway.clock import Clock, SystemClock
from gateway.config.auth import AuthConfig
from gateway.errors import Overloaded, Unauthenticated
from gateway.metrics import Metrics

ADDRESS_FAILURES_FREE: Final = 10
"""Failures of an address that do not count for others: one client with an old password."""
DOUBLINGS_MAX: Final = 30


class Peer(NamedTuple):
    """Source of a login."""

    protocol: str
    host: str


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last_ms: int = 0
    until_ms: int = 0  # when the next attempt may begin


class LoginThrottle:
    """Failed logins by user and address. Loop only."""

    def __init__(
        self,
        config: AuthConfig | None = None,
        audit: Audit | None = None,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._sleep = sleep
        self._config = config or AuthConfig()
        self._audit = audit or Audit()
        self._clock = clock or SystemClock()
        self._failures: OrderedDict[tuple[str, str | None], _Failures] = OrderedDict()
        self._waiting: Counter[str] = Counter()  # by address
        self._checking: Counter[str] = Counter()  # by address
        self.refused: Counter[str] = Counter()
        """Failed logins, by protocol."""

    @property
    def waiting_count(self) -> int:
        """Number of logins that wait to be checked or to be answered."""
        return self._waiting.total()

    def adopt(self, config: AuthConfig) -> None:
        """Apply changed settings."""
        self._config = config

    def register_metrics(self, metrics: Metrics) -> None:
        """Register the metrics."""
        metrics.counters_fn(
            "headgate_refused_logins",
            "Refused logins, by protocol.",
            ("protocol",),
            lambda: [((protocol,), count) for protocol, count in self.refused.items()],
        )
        metrics.gauge(
            "headgate_delayed_logins",
            "Logins delayed because earlier ones failed.",
            lambda: self.waiting_count,
        )

    def attempt(self, peer: Peer) -> "Attempt":
        """Return the context of one login step; see ``Attempt``."""
        return Attempt(self, peer)

    def refuse(self, peer: Peer, user: str, error: Exception) -> None:
        """Count and log a failed login that needs no delay, because it cannot be guessed."""
        self.refused[peer.protocol] += 1
        self._audit.login_refused(peer.protocol, peer.host, user, str(error))

    async def turn(self, peer: Peer, user: str) -> None:
        """Wait until a user may try again from there. Errors: ``Overloaded``."""
        # Even one that need not wait: where the bound is reached, guessing has to stop.
        self._check_room(peer)
        while (wait_ms := self._until_turn_ms(peer, user)) > 0:
            await self._wait(peer, wait_ms)
        known = self._failures.get((peer.host, user))
        if known is not None:  # those that wait beside it wait on, until it has passed
            delay_ms = self._delay_ms(known.count + 1, free=0)
            known.until_ms = self._clock.monotonic_ms() + delay_ms

    def begin_check(self, peer: Peer) -> None:
        """Count a password check of an address. Error: ``Overloaded`` when it has too many."""
        known = self._failures.get((peer.host, None))
        is_suspect = known is not None and known.count > ADDRESS_FAILURES_FREE
        if is_suspect and self._checking[peer.host] >= self._config.checks_per_ip_max:
            msg = "checks_per_ip_max logins from this address are being checked"
            raise Overloaded(msg)
        self._checking[peer.host] += 1

    def end_check(self, peer: Peer) -> None:
        """Count the end of a password check."""
        self._checking[peer.host] -= 1
        if self._checking[peer.host] <= 0:
            del self._checking[peer.host]

    async def failed(self, peer: Peer, user: str, error: Exception) -> None:
        """Count and log a failure; return when it may be answered."""
        self.refuse(peer, user, error)
        delay_ms = self._delay_ms(self._count(peer.host, user), free=0)
        address = self._count(peer.host, None)
        delay_ms = max(delay_ms, self._delay_ms(address, free=ADDRESS_FAILURES_FREE))
        self._failures[peer.host, user].until_ms = self._clock.monotonic_ms() + delay_ms
        await self._wait(peer, delay_ms)

    def passed(self, peer: Peer, user: str) -> None:
        """Forget the failures of a user who has shown the right password."""
        self._failures.pop((peer.host, user), None)

    def _until_turn_ms(self, peer: Peer, user: str) -> int:
        known = self._failures.get((peer.host, user))
        return 0 if known is None else known.until_ms - self._clock.monotonic_ms()

    def _count(self, host: str, user: str | None) -> int:
        now_ms = self._clock.monotonic_ms()
        failures = self._failures.setdefault((host, user), _Failures())
        self._failures.move_to_end((host, user))
        if now_ms - failures.last_ms > self._config.failure_memory_ms:
            failures.count = 0
        failures.count += 1
        failures.last_ms = now_ms
        while len(self._failures) > self._config.failures_remembered_max:
            self._failures.popitem(last=False)
        return failures.count

    def _delay_ms(self, count: int, *, free: int) -> int:
        if count <= free:
            return 0
        doublings = min(count - free - 1, DOUBLINGS_MAX)
        delay_ms = self._config.failure_delay_ms << doublings
        return min(delay_ms, self._config.failure_delay_ms_max)

    def _check_room(self, peer: Peer) -> None:
        if self._waiting.get(peer.host, 0) >= self._config.delayed_logins_per_ip_max:
            msg = "delayed_logins_per_ip_max logins from this address wait after failures"
            raise Overloaded(msg)

    async def _wait(self, peer: Peer, wait_ms: int) -> None:
        self._waiting[peer.host] += 1
        try:
            await self._sleep(wait_ms / 1_000)
        finally:
            self._waiting[peer.host] -= 1
            if not self._waiting[peer.host]:
                del self._waiting[peer.host]


class Attempt:
    """Context of one login step: its errors are counted, logged and delayed.

    Call ``turn`` with the user's name before a password or proof is checked, and ``passed`` when
    it was right.
    """

    def __init__(self, logins: LoginThrottle, peer: Peer) -> None:
        self._logins = logins
        self._peer = peer
        self._user = ""
        self._is_checking = False

    async def turn(self, user: str) -> None:
        """See ``LoginThrottle.turn``. All spellings of one user's name count together."""
        self._user = user
        with suppress(Unauthenticated):  # of a name that is none; the check says so
            self._user = saslprep(user)
        await self._logins.turn(self._peer, self._user)
        self._logins.begin_check(self._peer)
        self._is_checking = True

    def passed(self) -> None:
        """See ``LoginThrottle.passed``."""
        self._logins.passed(self._peer, self._user)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _at: object) -> None:
        if self._is_checking:
            self._is_checking = False
            self._logins.end_check(self._peer)
        if isinstance(error, Unauthenticated):
            await self._logins.failed(self._peer, self._user, error)
