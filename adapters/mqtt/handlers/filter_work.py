"""SUBSCRIBE and UNSUBSCRIBE of many filters, served over turns of the loop.

A packet may bear hundreds of thousands of filters. What is small is served as it comes; of the
rest some milliseconds are, then others come, and the connection's next packets wait. First all
filters are checked, as what ends the connection must change nothing, then they are worked on.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.reading.pacing import FILTERS_PER_STEP, Pace


class FilterWork(Protocol):
    """A packet with filters: ``step`` says which of them. Its answer goes when all is kept."""

    def check(self, step: slice) -> None:
        """Look at some filters; nothing is changed. Error: ``MqttError`` ends the connection."""
        ...

    def take(self, step: slice, on_kept: Callable[[], None]) -> None:
        """Work on some; ``on_kept`` is called once, when that is kept or refused."""
        ...

    def answer(self) -> None:
        """Send the answer: all is kept or refused, and the client is there."""
        ...


def serve(connection: MqttConnection, work: FilterWork, count: int) -> None:
    """Do work of ``count`` filters: now, or over turns in which nothing more is served.

    What the client has published before is kept, and handed out, first: to a filter of its own it
    comes before that begins, and before it ends. Many small packets of one read are like a large
    one. Error: ``MqttError``.
    """
    if connection.inbound.is_pending:
        connection.inbound.wait_until_kept(partial(_serve_after, connection, work, count))
    else:
        _begin(connection, work, count)


def _serve_after(connection: MqttConnection, work: FilterWork, count: int) -> None:
    """Do what has waited for publishes of the same client."""
    if connection.is_closing:
        return
    connection.node.feeds.push_held()
    if _begin(connection, work, count):
        connection.go_on()


def _begin(connection: MqttConnection, work: FilterWork, count: int) -> bool:
    """Do work, or have it done over turns; says whether it is done."""
    connection.request_began()
    steps = _Steps(connection, work, count)
    connection.filters_served += count
    if connection.filters_served > FILTERS_PER_STEP:
        connection.filters_served = 0
        connection.wait()
        context = connection.node.context
        context.start(_over_turns(connection, steps, context.pace))
        return False
    while not steps.are_over:
        steps.go()
    return True


class _Steps:
    """Progress of the work on a packet."""

    def __init__(self, connection: MqttConnection, work: FilterWork, count: int) -> None:
        self._connection = connection
        self._work = work
        self._count = count
        self._checked = 0
        self._taken = 0
        self._unkept = 1  # steps that are not kept, and the rest of the work

    @property
    def are_over(self) -> bool:
        """Whether all is done; who has closed meanwhile keeps what it has got so far."""
        return self._taken >= self._count or self._connection.is_closing

    def go(self) -> None:
        """Check, or work on, the next ``FILTERS_PER_STEP``."""
        if self._checked < self._count:
            step = slice(self._checked, self._checked + FILTERS_PER_STEP)
            self._checked = step.stop
            self._work.check(step)
            return
        step = slice(self._taken, self._taken + FILTERS_PER_STEP)
        self._taken = step.stop
        self._unkept += 1
        self._work.take(step, self._on_kept)
        if self._taken >= self._count:
            self._on_kept()

    def _on_kept(self) -> None:
        self._unkept -= 1
        if not self._unkept:
            self._connection.guard(self._answer)

    def _answer(self) -> None:
        connection = self._connection
        if not connection.is_closing:
            self._work.answer()
        if not connection.is_closing:
            connection.request_ended()


async def _over_turns(connection: MqttConnection, steps: _Steps, pace: Pace) -> None:
    while not steps.are_over:
        async with pace:
            while not steps.are_over:
                connection.guard(steps.go)
                if pace.is_over:
                    break
    if not connection.is_closing:
        connection.guard(connection.go_on)
