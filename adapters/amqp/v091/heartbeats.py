"""Heartbeats of a connection (section 4.2.7): when to send one, and when the peer is lost."""


class Heartbeats:
    """Heartbeats as both sides have agreed. ``heartbeat_s``: 0 for none."""

    __slots__ = ("_sent_bytes", "_sent_s", "heartbeat_s")

    def __init__(self, now_s: float) -> None:
        self.heartbeat_s = 0
        self._sent_bytes = 0
        self._sent_s = now_s

    def is_due(self, sent_bytes: int, now_s: float) -> bool:
        """Say whether to send one: nothing was sent for half of the time."""
        if not self.heartbeat_s:
            return False
        if sent_bytes != self._sent_bytes:
            self._sent_bytes, self._sent_s = sent_bytes, now_s
            return False
        return now_s - self._sent_s >= self.heartbeat_s / 2

    def is_lost(self, received_s: float, now_s: float) -> bool:
        """Say whether the peer has been silent for two heartbeats; any byte counts."""
        return bool(self.heartbeat_s) and now_s - received_s > 2 * self.heartbeat_s
