"""Timeouts of open transactions, and expiry of transactional ids that are not used any more."""

import asyncio
from collections import deque
from typing import Final

import structlog

from features.transactions import Transaction, fence
from gateway.clock import Clock
from gateway.config.transactions import TransactionsConfig
from gateway.deadlines import Deadlines
from gateway.errors import GatewayError, StorageUnavailable
from gateway.transactions.journal import TransactionalId
from gateway.transactions.values import TransactionValues

RETRY_MS: Final = 1_000
"""Time after which an abort that was refused, as on a full disk, is tried again."""
EXPIRE_EVERY_S: Final = 60.0
CHECKED_PER_TURN_MAX: Final = 100
ABORTED_PER_TURN_MAX: Final = 50
"""Transactions that time out at once are aborted in turns of the loop, in about 10 ms each."""

_log = structlog.get_logger()


class TransactionTimeouts:
    """Aborts transactions whose time is over, and removes ids that are idle for long."""

    def __init__(
        self, values: TransactionValues, clock: Clock, config: TransactionsConfig
    ) -> None:
        self._values = values
        self._clock = clock
        self._config = config
        self._deadlines: Deadlines[TransactionalId] = Deadlines(clock, self._time_out)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._unchecked: list[TransactionalId] = []
        self._due: deque[TransactionalId] = deque()
        self._due_left = ABORTED_PER_TURN_MAX
        self._turn: asyncio.Handle | None = None
        values.on_changed.append(self._follow)

    def start(self) -> None:
        """Start to look for ids that are expired."""
        self._timer = self._loop.call_later(EXPIRE_EVERY_S, self._expire)

    def close(self) -> None:
        """Stop the timers."""
        self._deadlines.close()
        self._due.clear()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _follow(self, name: TransactionalId, value: Transaction | None) -> None:
        """Set the deadline of a value; one that was set before is put off when it is reached."""
        if value is None:
            self._deadlines.forget(name)
        elif value.deadline_unix_ms is not None:
            left_ms = max(value.deadline_unix_ms - self._clock.unix_ms(), 0)
            self._deadlines.arm(name, self._clock.monotonic_ms() + left_ms)

    def _time_out(self, name: TransactionalId) -> None:
        """Abort a transaction now, or in a later turn of the loop."""
        self._due.append(name)
        if self._due_left:
            self._abort_next()
        if self._turn is None:
            self._turn = self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn = None
        self._due_left = ABORTED_PER_TURN_MAX
        while self._due and self._due_left:
            self._abort_next()
        if self._due:
            self._turn = self._loop.call_soon(self._next_turn)

    def _abort_next(self) -> None:
        self._due_left -= 1
        self._abort(self._due.popleft())

    def _abort(self, name: TransactionalId) -> None:
        value = self._values.by_name.get(name)
        if (
            value is None
            or value.deadline_unix_ms is None
            or not self._values.owners.owns(name)
        ):
            return
        now_unix_ms = self._clock.unix_ms()
        if value.deadline_unix_ms > now_unix_ms:
            self._follow(name, value)
            return
        ending = fence(value, now_unix_ms)
        try:
            self._values.keep(name, ending.value, ending, _ignore, outcome="timeout")
        except GatewayError as error:
            _log.warning("transaction not aborted", id=name.name, error=str(error))
            self._deadlines.arm(name, self._clock.monotonic_ms() + RETRY_MS)
            return

    def _expire(self) -> None:
        """Look at some ids and remove expired ones; at the others in the next turns of the loop."""
        names = self._unchecked = self._unchecked or list(self._values.by_name)
        before_unix_ms = self._clock.unix_ms() - self._config.id_expiration_ms
        try:
            for _ in range(min(CHECKED_PER_TURN_MAX, len(names))):
                self._expire_one(names.pop(), before_unix_ms)
        except GatewayError as error:
            _log.warning("transactional ids not expired", error=str(error))
            names.clear()
        self._timer = self._loop.call_later(0.0 if names else EXPIRE_EVERY_S, self._expire)

    def _expire_one(self, name: TransactionalId, before_unix_ms: int) -> None:
        value = self._values.by_name.get(name)
        if (
            value is not None
            and value.state.is_idle
            and value.updated_unix_ms < before_unix_ms
            and self._values.owners.owns(name)
        ):
            self._values.keep(name, None, None, _ignore)


def _ignore(_error: StorageUnavailable | None) -> None:
    """Ignore the result: an append that fails stops the node."""
