"""Counters of what became of messages in queues."""


class QueueCounters:
    """Counters of messages of all queues since the start."""

    __slots__ = (
        "corrupt",
        "dead_lettered",
        "delivered",
        "dropped",
        "expired",
        "refused",
        "settled",
    )

    def __init__(self) -> None:
        self.delivered = 0
        self.settled = 0
        self.expired = 0
        self.corrupt = 0
        self.dead_lettered = 0
        self.dropped = 0
        self.refused = 0
