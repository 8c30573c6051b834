"""Counters of the MQTT endpoint, for ``/metrics`` and ``$SYS``."""

from gateway.monitoring.request_latency import RequestLatency


class Counters:
    """Plain numbers: adding to one must cost next to nothing."""

    __slots__ = (
        "backlog_skipped",
        "bytes_received_closed",
        "bytes_sent_closed",
        "connects",
        "dropped",
        "duplicates",
        "ended_dropped",
        "expired",
        "latency",
        "messages_received",
        "messages_sent",
        "publish_received",
        "publish_refused",
        "publish_sent",
        "redelivered",
        "takeovers",
        "too_large",
        "wills_published",
    )

    def __init__(self) -> None:
        self.latency = RequestLatency()
        self.messages_received = 0  # packets of all types
        self.messages_sent = 0
        self.publish_received = 0
        self.publish_sent = 0
        self.publish_refused = 0  # not authorised, or no room in the log
        self.dropped = 0  # QoS 0 for receivers that are too slow
        self.too_large = 0  # for the receiver's Maximum Packet Size
        self.expired = 0
        self.duplicates = 0  # QoS 2 publishes that came again
        self.redelivered = 0
        self.backlog_skipped = 0  # records that sessions were too far behind to get
        self.ended_dropped = 0  # ended subscriptions with a rest, because there were too many
        self.connects = 0
        self.takeovers = 0
        self.wills_published = 0
        self.bytes_received_closed = 0  # of connections that have ended
        self.bytes_sent_closed = 0
