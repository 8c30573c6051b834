"""Publishes ``$SYS``: gathers the node's figures and sends those that changed."""

import asyncio
from collections.abc import Sequence
from importlib.metadata import version

from adapters.mqtt.counters import Counters
from adapters.mqtt.delivery.distributor import Distributor
from adapters.mqtt.retained.store import RetainedStore
from adapters.mqtt.sessions.registry import Sessions
from adapters.mqtt.sys_topics.values import SysTopics, Totals
from adapters.mqtt.wire import PublishRun
from gateway.clock import Clock
from gateway.listener import Listener


class SysPublisher:
    """A timer of ``interval_s``; 0 is none, and then there are no ``$SYS`` topics."""

    def __init__(  # noqa: PLR0917 - what there is to count
        self,
        clock: Clock,
        counters: Counters,
        sessions: Sessions,
        distributor: Distributor,
        retained: RetainedStore,
        interval_s: int,
    ) -> None:
        self.listeners: Sequence[Listener] = ()
        self._clock = clock
        self._counters = counters
        self._sessions = sessions
        self._distributor = distributor
        self._retained = retained
        self._interval_s = interval_s
        self._topics = SysTopics(version("headgate"), clock.monotonic_ms())
        self._timer: asyncio.TimerHandle | None = None

    def start(self, listeners: Sequence[Listener]) -> None:
        """Publish now, and again and again."""
        self.listeners = listeners
        if self._interval_s:
            self._tick()

    def stop(self) -> None:
        """Publish no more."""
        if self._timer is not None:
            self._timer.cancel()

    def match(self, topic_filter: str) -> list[tuple[bytes, bytes]]:
        """Return the present values that a filter matches."""
        return self._topics.match(topic_filter)

    def _tick(self) -> None:
        for topic, payload in self._topics.update(self._totals(), self._clock.monotonic_ms()):
            self._distributor.deliver(PublishRun(topic, [payload]))
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._tick)

    def _totals(self) -> Totals:
        counters, sessions = self._counters, self._sessions
        connections = [one for listener in self.listeners for one in listener.connections]
        return Totals(
            clients_connected=sessions.connected,
            clients_disconnected=sessions.count - sessions.connected,
            clients_maximum=sessions.connected_max,
            clients_expired=sessions.expired,
            connections=counters.connects,
            sockets=sum(listener.accepted for listener in self.listeners),
            messages_received=counters.messages_received,
            messages_sent=counters.messages_sent + counters.publish_sent,
            publish_messages_received=counters.publish_received,
            publish_messages_sent=counters.publish_sent,
            publish_messages_dropped=counters.dropped,
            bytes_received=counters.bytes_received_closed
            + sum(one.bytes_received for one in connections),
            bytes_sent=counters.bytes_sent_closed + sum(one.bytes_sent for one in connections),
            retained_count=len(self._retained),
            retained_bytes=self._retained.size_bytes,
            subscriptions_count=sessions.subscription_count,
            shared_subscriptions_count=sessions.shared_count,
        )
