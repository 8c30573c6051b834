"""``$SYS/broker``: how the node is, under the names that Mosquitto gave the figures.

Figures are decimal text. A load is what happens in a minute, averaged over 1, 5 and 15 of them
as Unix averages its load: each update takes in the last interval and lets older ones fade.
Topics keep their last value, which a new subscription finds like a retained message.
"""

import math
from dataclasses import dataclass
from typing import Final

from features.retained import RetainedTopics

VALUES_MAX: Final = 1_000
"""More than there are topics: one ``match`` is enough."""

_PREFIX: Final = "$SYS/broker/"
_MINUTES: Final = (1, 5, 15)
_MS_PER_MINUTE: Final = 60_000
_MS_PER_S: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counts since the node started, and sizes now."""

    clients_connected: int
    clients_disconnected: int  # sessions that are kept without a connection
    clients_maximum: int  # connected at the same time
    clients_expired: int
    connections: int  # CONNECT packets that were accepted
    sockets: int  # connections opened by peers
    messages_received: int  # packets of all types
    messages_sent: int
    publish_messages_received: int
    publish_messages_sent: int
    publish_messages_dropped: int
    bytes_received: int
    bytes_sent: int
    retained_count: int
    retained_bytes: int
    subscriptions_count: int
    shared_subscriptions_count: int


class SysTopics:
    """The values of ``$SYS/broker/...``; ``update`` every ``sys_interval_s``. Pure."""

    def __init__(self, version: str, now_monotonic_ms: int) -> None:
        self._started_ms = self._updated_ms = now_monotonic_ms
        self._before: dict[str, int] = {}
        self._loads: dict[str, float] = {}
        self._version = version
        self._values: dict[bytes, bytes] = {}
        self._topics = RetainedTopics()

    def update(self, totals: Totals, now_monotonic_ms: int) -> list[tuple[bytes, bytes]]:
        """Take in new figures; return (topic, payload) of those that changed."""
        figures = _values_by_name(totals)
        figures["version"] = f"headgate version {self._version}"
        uptime_s = (now_monotonic_ms - self._started_ms) // _MS_PER_S
        figures["uptime"] = f"{uptime_s} seconds"
        passed_ms = now_monotonic_ms - self._updated_ms
        if passed_ms > 0:
            self._update_loads(_loaded(totals), passed_ms)
            self._updated_ms = now_monotonic_ms
        figures |= {f"load/{name}": f"{load:.2f}" for name, load in self._loads.items()}
        changed: list[tuple[bytes, bytes]] = []
        for name, text in figures.items():
            topic = (_PREFIX + name).encode()
            payload = text.encode()
            if self._values.get(topic) != payload:
                self._values[topic] = payload
                self._topics.put(topic)
                changed.append((topic, payload))
        return changed

    def values(self) -> list[tuple[bytes, bytes]]:
        """Return (topic, payload) of all topics, as of the last update."""
        return list(self._values.items())

    def match(self, topic_filter: str) -> list[tuple[bytes, bytes]]:
        """Return (topic, payload) of those that a valid filter matches, in order."""
        topics, _ = self._topics.match(topic_filter, count_max=VALUES_MAX)
        return [(topic, self._values[topic]) for topic in topics]

    def _update_loads(self, counts: dict[str, int], passed_ms: int) -> None:
        per_minute = _MS_PER_MINUTE / passed_ms
        for name, count in counts.items():
            rate = (count - self._before.get(name, 0)) * per_minute
            for minutes in _MINUTES:
                path = f"{name}/{minutes}min"
                fade = math.exp(-passed_ms / (minutes * _MS_PER_MINUTE))
                self._loads[path] = rate + fade * (self._loads.get(path, 0.0) - rate)
        self._before = counts


def _values_by_name(totals: Totals) -> dict[str, str]:
    clients_total = totals.clients_connected + totals.clients_disconnected
    numbers = {
        "clients/connected": totals.clients_connected,
        "clients/active": totals.clients_connected,
        "clients/disconnected": totals.clients_disconnected,
        "clients/inactive": totals.clients_disconnected,
        "clients/maximum": totals.clients_maximum,
        "clients/total": clients_total,
        "clients/expired": totals.clients_expired,
        "messages/received": totals.messages_received,
        "messages/sent": totals.messages_sent,
        "publish/messages/received": totals.publish_messages_received,
        "publish/messages/sent": totals.publish_messages_sent,
        "publish/messages/dropped": totals.publish_messages_dropped,
        "bytes/received": totals.bytes_received,
        "bytes/sent": totals.bytes_sent,
        "retained messages/count": totals.retained_count,
        "store/messages/count": totals.retained_count,
        "store/messages/bytes": totals.retained_bytes,
        "subscriptions/count": totals.subscriptions_count,
        "shared_subscriptions/count": totals.shared_subscriptions_count,
    }
    return {name: str(number) for name, number in numbers.items()}


def _loaded(totals: Totals) -> dict[str, int]:
    return {
        "messages/received": totals.messages_received,
        "messages/sent": totals.messages_sent,
        "publish/received": totals.publish_messages_received,
        "publish/sent": totals.publish_messages_sent,
        "publish/dropped": totals.publish_messages_dropped,
        "bytes/received": totals.bytes_received,
        "bytes/sent": totals.bytes_sent,
        "connections": totals.connections,
        "sockets": totals.sockets,
    }
