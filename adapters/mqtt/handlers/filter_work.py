"""SUBSCRIBE and UNSUBSCRIBE of many filters, served over turns of the loop.

A packet may have hundreds of thousands of filters. A small one is served at once. A large one is
served for some milliseconds at a time; other connections are served in between, and the
connection's next packets wait. All filters are checked before the first is processed, because a
packet that ends the connection must change nothing.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.reading.pacing import FILTERS_PER_STEP, Pace


class FilterWork(Protocol):
    """A packet with filters: ``step`` says which of them. Its answer goes when all is kept."""

    def check(self, step: slice) -> None:
        """Check some filters without a change. Error: ``MqttError`` ends the connection."""
        ...

    def take(self, step: slice, on_kept: Callable[[], None]) -> None:
        """Process some; ``on_kept`` is called once, when they are durable or refused."""
        ...

    def answer(self) -> None:
        """Send the answer: all filters are durable or refused, and the client is connected."""
        ...


def serve(connection: MqttConnection, work: FilterWork, count: int) -> None:
    """Process ``count`` filters: now, or over several turns of the loop.

    Earlier publishes of the same client are made durable and delivered first. So a subscription of
    the client begins after them, and an unsubscribed filter still gets them. Many small packets of
    one read are treated like a large one. Error: ``MqttError``.
    """
    if connection.inbound.is_pending:
        connection.inbound.wait_until_kept(partial(_serve_after, connection, work, count))
    else:
        _begin(connection, work, count)


def _serve_after(connection: MqttConnection, work: FilterWork, count: int) -> None:
    """Process the filters that waited for publishes of the same client."""
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
        """Whether all is done; a client that has closed keeps the filters that were processed."""
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
