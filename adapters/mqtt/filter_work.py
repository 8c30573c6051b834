"""SUBSCRIBE and UNSUBSCRIBE of many filters, served over turns of the loop.

A packet may bear hundreds of thousands of filters. What is small is served as it comes; of the
rest some milliseconds are, then others come, and the connection's next packets wait. First all
filters are checked, as what ends the connection must change nothing, then they are worked on.
"""

from typing import TYPE_CHECKING, Final, Protocol

from adapters.mqtt.pacing import Pace

if TYPE_CHECKING:  # connections know handlers, which know this
    from adapters.mqtt.connection import MqttConnection

FILTERS_PER_STEP: Final = 32  # served at once, and of one connection before others come


class FilterWork(Protocol):
    """A packet with filters. ``is_done``: all filters were worked on."""

    is_done: bool

    def step(self) -> None:
        """Check or work on the next ``FILTERS_PER_STEP``. Error: ``MqttError``."""
        ...


def serve(connection: "MqttConnection", work: FilterWork, count: int) -> None:
    """Do work of ``count`` filters: now, or over turns in which nothing more is served.

    Many small packets of one read are like a large one.
    """
    connection.filters_served += count
    if connection.filters_served > FILTERS_PER_STEP:
        connection.filters_served = 0
        connection.wait()
        services = connection.node.services
        services.start(_over_turns(connection, work, services.pace))
        return
    while not work.is_done:
        work.step()


async def _over_turns(connection: "MqttConnection", work: FilterWork, pace: Pace) -> None:
    """Who has closed meanwhile keeps what it has got so far."""
    while not _is_over(connection, work):
        async with pace:
            while not _is_over(connection, work):
                connection.guard(work.step)
                if pace.is_over:
                    break
    if not connection.is_closing:
        connection.guard(connection.go_on)


def _is_over(connection: "MqttConnection", work: FilterWork) -> bool:
    return work.is_done or connection.is_closing
